open("was-here", "w").write("x")
