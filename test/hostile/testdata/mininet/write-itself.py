open(__file__, "a").write("# x")
