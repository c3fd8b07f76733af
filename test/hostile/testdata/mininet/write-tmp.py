open("/tmp/trivet-hostile-was-here", "w").write("x")
