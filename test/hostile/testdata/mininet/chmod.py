import os
os.chmod(__file__, 0o777)
