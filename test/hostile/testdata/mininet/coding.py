# -*- coding: utf-7 -*-
raise ValueError("+AGE-")
