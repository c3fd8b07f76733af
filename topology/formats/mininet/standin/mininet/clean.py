"""There is nothing to clean up."""


def cleanup():
    pass


class Cleanup:
    callbacks = []

    @classmethod
    def cleanup(cls):
        pass

    @classmethod
    def addCleanupCallback(cls, callback):
        cls.callbacks.append(callback)


def sh(_cmd):
    return ""


killprocs = sh
