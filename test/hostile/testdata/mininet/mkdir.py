import os
os.mkdir("was-here.d")
