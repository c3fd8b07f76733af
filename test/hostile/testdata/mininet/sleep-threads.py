import threading, time
for i in range(50):
    threading.Thread(target=time.sleep, args=(1000,)).start()
