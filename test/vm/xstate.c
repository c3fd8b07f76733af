/* Loaded into User-Mode Linux 6.1 on processors with AMX, where its processes would die of a bad set of registers:
   it restores them by PTRACE_SETREGSET from a buffer of 2,696 bytes, and Linux takes all of a processor's, 11,008 there,
   or nothing. What it leaves out, the tiles that no program of the guest can use, stays as it is. */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

long ptrace(enum __ptrace_request request, ...)
{
	static _Thread_local char registers[1 << 16];
	struct iovec all = {registers, sizeof registers};
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *address = va_arg(args, void *), *data = va_arg(args, void *);
	va_end(args);

	if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
		const struct iovec *known = data;
		if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) < 0)
			return -1;
		memcpy(registers, known->iov_base, known->iov_len < all.iov_len ? known->iov_len : all.iov_len);
		data = &all;
	}
	/* These return what the system call, unlike its wrapper in the C library, stores. */
	if (request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER) {
		long word;
		if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
			return -1;
		errno = 0;
		return word;
	}
	return syscall(SYS_ptrace, request, pid, address, data);
}
