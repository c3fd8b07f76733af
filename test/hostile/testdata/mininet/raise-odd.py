class E(BaseException):
    def __str__(self):
        raise E()
raise E()
