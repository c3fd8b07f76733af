// The first process of a container: it waits until its lab's network is there, and becomes the
// container's own program.
//
//     waiter GATES PROGRAM [ARGUMENT...]
//
// GATES is a directory with two named pipes. Opening the first, begin, waits until somebody writes
// to it. The second, began, is closed when PROGRAM has begun, or is told, as decimal digits, with
// which error (errno) it could not. It needs no library: each container starts with it, and its
// image need not have one.

// As the kernel has them on all of these machines.
enum { at_fdcwd = -100, o_rdonly = 0, o_wronly = 1, o_cloexec = 02000000 };
enum { enoent = 2, eintr = 4, eacces = 13, enotdir = 20, enametoolong = 36 };

#if defined(__x86_64__)

enum { sys_openat = 257, sys_close = 3, sys_write = 1, sys_execve = 59, sys_exit_group = 231 };

__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call start\n");

static long call(long number, long a, long b, long c, long d) {
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}

#elif defined(__aarch64__)

enum { sys_openat = 56, sys_close = 57, sys_write = 64, sys_execve = 221, sys_exit_group = 94 };

__asm__(".globl _start\n_start:\n mov x0, sp\n bl start\n");

static long call(long number, long a, long b, long c, long d) {
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}

#elif defined(__arm__)

enum { sys_openat = 322, sys_close = 6, sys_write = 4, sys_execve = 11, sys_exit_group = 248 };

__asm__(".globl _start\n_start:\n mov r0, sp\n bl start\n");

static long call(long number, long a, long b, long c, long d) {
	register long r7 __asm__("r7") = number;
	register long r0 __asm__("r0") = a;
	register long r1 __asm__("r1") = b;
	register long r2 __asm__("r2") = c;
	register long r3 __asm__("r3") = d;
	__asm__ volatile("svc 0" : "+r"(r0) : "r"(r7), "r"(r1), "r"(r2), "r"(r3) : "memory");
	return r0;
}

#endif

enum { longest = 4096 };

static void quit(int status) {
	for (;;)
		call(sys_exit_group, status, 0, 0, 0);
}

// join writes the path of name in a directory whose name ends at end; 0: it is too long.
static int join(char *out, const char *dir, const char *end, const char *name) {
	int n = 0;
	while (dir < end && n < longest - 2)
		out[n++] = *dir++;
	if (n)
		out[n++] = '/';
	while (*name && n < longest - 1)
		out[n++] = *name++;
	out[n] = 0;
	return dir == end && !*name;
}

static const char *end_of(const char *text, char at) {
	while (*text && *text != at)
		text++;
	return text;
}

// until_open opens a pipe, which waits for somebody at its other end.
static long until_open(const char *gates, const char *name, int mode) {
	char path[longest];
	long fd;
	if (!join(path, gates, end_of(gates, 0), name))
		return -enametoolong;
	do
		fd = call(sys_openat, at_fdcwd, (long)path, mode | o_cloexec, 0);
	while (fd == -eintr);
	return fd;
}

// become executes a program, which is looked for as execvp(3) does, and returns why it could not.
static long become(char **argv, char **envp) {
	char path[longest];
	const char *at = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
	long why = -enoent;
	if (!argv[0][0])
		return why;
	if (*end_of(argv[0], '/'))
		return call(sys_execve, (long)argv[0], (long)argv, (long)envp, 0);
	for (char **e = envp; *e; e++)
		if ((*e)[0] == 'P' && (*e)[1] == 'A' && (*e)[2] == 'T' && (*e)[3] == 'H' && (*e)[4] == '=')
			at = *e + 5;
	for (;;) {
		const char *end = end_of(at, ':');
		if (end > at && join(path, at, end, argv[0])) { // not what lies in the working directory
			long error = call(sys_execve, (long)path, (long)argv, (long)envp, 0);
			if (error != -enoent && error != -enotdir && error != -eacces)
				return error;
			if (error == -eacces) // it is there, and may be in the next directory, too
				why = error;
		}
		if (!*end)
			return why;
		at = end + 1;
	}
}

__attribute__((used)) void start(long *stack) {
	long argc = stack[0];
	char **argv = (char **)(stack + 1), **envp = argv + argc + 1;
	if (argc < 3)
		quit(2);
	long fd = until_open(argv[1], "begin", o_rdonly);
	if (fd < 0)
		quit(3);
	call(sys_close, fd, 0, 0, 0);
	fd = until_open(argv[1], "began", o_wronly);
	if (fd < 0)
		quit(3);
	long error = -become(argv + 2, envp);
	char text[8];
	int n = sizeof text;
	for (; n && error; error /= 10)
		text[--n] = '0' + error % 10;
	call(sys_write, fd, (long)(text + n), sizeof text - n, 0);
	quit(127);
}
