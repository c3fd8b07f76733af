import signal
for name in ("ALRM", "PROF", "XCPU", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)
signal.setitimer(signal.ITIMER_REAL, 0)
signal.setitimer(signal.ITIMER_PROF, 0)
while True:
    pass
