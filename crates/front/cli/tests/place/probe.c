/* System calls of the tests that need unsafe code in Rust: mappings, file handles, asynchronous I/O.
 *
 *   probe map PATH OFFSET LENGTH SEED [sync]   writes words through a shared mapping
 *   probe handle PATH                          prints a file handle
 *   probe open DIRECTORY HANDLE                prints the contents of the file, or the error number
 *   probe aio PATH ROUNDS                      writes by asynchronous direct I/O, and reads through the cache
 *   probe ioctl PATH NUMBER DATA               calls ioctl with these bytes (hexadecimal), and prints the
 *                                              buffer afterwards, or the error number
 *   probe idmap SOURCE TARGET FIRST COUNT      creates an ID-mapped mount: IDs 0 to COUNT appear from FIRST on
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* From <linux/mount.h>, which some systems lack. */
#define SYSTEM_MOVE_MOUNT 429
#define SYSTEM_OPEN_TREE 428
#define SYSTEM_MOUNT_SETATTR 442
#define OPEN_TREE_CLONE_IT 1
#define MOVE_MOUNT_FROM_FD 4
#define MOUNT_IDMAP 0x100000

struct mount_attributes {
    uint64_t set, clear, propagation, user_namespace;
};

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static int map(char **arguments, int synchronous)
{
    uint64_t offset = strtoull(arguments[1], NULL, 10), length = strtoull(arguments[2], NULL, 10);
    uint64_t seed = strtoull(arguments[3], NULL, 10), page = offset & ~UINT64_C(4095);
    int file = open(arguments[0], O_RDWR);
    if (file < 0)
        fail(arguments[0]);
    size_t mapped = length + (offset - page);
    char *bytes = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, (off_t)page);
    if (bytes == MAP_FAILED)
        fail("mmap");
    for (uint64_t at = offset; at < offset + length; at++) {
        uint64_t word = seed * UINT64_C(0x9e3779b97f4a7c15) + (at / 8) * UINT64_C(0xbf58476d1ce4e5b9);
        bytes[at - page] = (char)(word >> (at % 8 * 8));
    }
    if (synchronous && msync(bytes, mapped, MS_SYNC) != 0)
        fail("msync");
    if (munmap(bytes, mapped) != 0 || close(file) != 0)
        fail("munmap, close");
    return 0;
}

static size_t bytes_of(const char *text, unsigned char *bytes, size_t room)
{
    size_t at = 0;
    for (; at < room && text[2 * at]; at++) {
        char digits[3] = { text[2 * at], text[2 * at + 1], 0 };
        bytes[at] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return at;
}

static int ask(char **arguments)
{
    unsigned char bytes[4096];
    size_t length = bytes_of(arguments[2], bytes, sizeof bytes);
    int file = open(arguments[0], O_RDONLY);
    if (file < 0)
        fail(arguments[0]);
    if (ioctl(file, strtoul(arguments[1], NULL, 0), bytes) < 0) {
        printf("error %d\n", errno);
        return 0;
    }
    for (size_t at = 0; at < length; at++)
        printf("%02x", bytes[at]);
    printf("\n");
    return 0;
}

static void write_map(pid_t process, const char *name, const char *first, const char *count)
{
    char path[64], line[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)process, name);
    int length = snprintf(line, sizeof line, "0 %s %s", first, count);
    int file = open(path, O_WRONLY);
    if (file < 0 || write(file, line, (size_t)length) != length || close(file) != 0)
        fail(path);
}

/* A user namespace, kept alive by its open file. */
static int namespace_of(const char *first, const char *count)
{
    int ready[2], end[2];
    char byte = 0, path[64];
    if (pipe(ready) != 0 || pipe(end) != 0)
        fail("pipe");
    pid_t process = fork();
    if (process < 0)
        fail("fork");
    if (process == 0) {
        close(end[1]);
        if (unshare(CLONE_NEWUSER) != 0 || write(ready[1], &byte, 1) != 1)
            _exit(1);
        _exit(read(end[0], &byte, 1) < 0);
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        fail("unshare");
    write_map(process, "uid_map", first, count);
    write_map(process, "gid_map", first, count);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)process);
    int file = open(path, O_RDONLY);
    if (file < 0)
        fail(path);
    close(end[1]);
    waitpid(process, NULL, 0);
    return file;
}

static int map_ids(char **arguments)
{
    struct mount_attributes attributes = { .set = MOUNT_IDMAP };
    attributes.user_namespace = (uint64_t)namespace_of(arguments[2], arguments[3]);
    long tree = syscall(SYSTEM_OPEN_TREE, AT_FDCWD, arguments[0], OPEN_TREE_CLONE_IT | O_CLOEXEC);
    if (tree < 0)
        fail("open_tree");
    if (syscall(SYSTEM_MOUNT_SETATTR, tree, "", AT_EMPTY_PATH, &attributes, sizeof attributes) != 0)
        fail("mount_setattr");
    if (syscall(SYSTEM_MOVE_MOUNT, tree, "", AT_FDCWD, arguments[1], MOVE_MOUNT_FROM_FD) != 0)
        fail("move_mount");
    return 0;
}

union handle {
    struct file_handle head;
    char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
};

static int print_handle(const char *path)
{
    union handle handle = { .head.handle_bytes = MAX_HANDLE_SZ };
    int mount;
    if (name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) != 0)
        fail("name_to_handle_at");
    const unsigned char *bytes = (const unsigned char *)&handle;
    for (size_t at = 0; at < sizeof(struct file_handle) + handle.head.handle_bytes; at++)
        printf("%02x", bytes[at]);
    printf("\n");
    return 0;
}

static int open_handle(const char *directory, const char *text)
{
    union handle handle;
    char buffer[4096];
    bytes_of(text, (unsigned char *)&handle, sizeof handle);
    int root = open(directory, O_RDONLY | O_DIRECTORY);
    if (root < 0)
        fail(directory);
    int file = open_by_handle_at(root, &handle.head, O_RDONLY);
    if (file < 0) {
        printf("error %d\n", errno);
        return 0;
    }
    ssize_t count;
    while ((count = read(file, buffer, sizeof buffer)) > 0)
        fwrite(buffer, 1, (size_t)count, stdout);
    return count == 0 ? 0 : 1;
}

enum { AIO_BYTES = 1 << 20, AIO_REQUESTS = 16, AIO_LENGTH = AIO_BYTES / AIO_REQUESTS };

static void compare(int file, const char *expected, char *room, int round, const char *which)
{
    if (pread(file, room, AIO_BYTES, 0) != AIO_BYTES)
        fail(which);
    for (size_t at = 0; at < AIO_BYTES; at++)
        if (room[at] != expected[at]) {
            printf("round %d: %s sees %02x at %zu instead of %02x\n", round, which,
                   (unsigned char)room[at], at, (unsigned char)expected[at]);
            exit(1);
        }
}

/* Starts a process that reads the file through the cache until this process ends. */
static void have_read(int cached, char *room)
{
    pid_t reader = fork();
    if (reader < 0)
        fail("fork");
    if (reader > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (getppid() != 1)
        for (off_t at = 0; at < AIO_BYTES; at += AIO_LENGTH)
            if (pread(cached, room, AIO_LENGTH, at) < 0)
                _exit(1);
    _exit(0);
}

/* One round: writes the file by asynchronous direct I/O, while it is read through the cache, so that pages
 * may contain old data. After the writes are complete, all readers must see the new data, and a byte
 * written through the cache must change only that byte. */
static void round_of_aio(aio_context_t context, int cached, int direct, char *bytes, char *room, int round)
{
    struct iocb requests[AIO_REQUESTS], *pointers[AIO_REQUESTS];
    struct io_event events[AIO_REQUESTS];
    memset(requests, 0, sizeof requests);
    memset(bytes, 1 + round % 250, AIO_BYTES);
    for (int nth = 0; nth < AIO_REQUESTS; nth++) {
        pointers[nth] = &requests[nth];
        requests[nth].aio_lio_opcode = IOCB_CMD_PWRITE;
        requests[nth].aio_fildes = (uint32_t)direct;
        requests[nth].aio_buf = (uint64_t)(uintptr_t)(bytes + nth * AIO_LENGTH);
        requests[nth].aio_nbytes = AIO_LENGTH;
        requests[nth].aio_offset = nth * AIO_LENGTH;
    }
    if (syscall(SYS_io_submit, context, AIO_REQUESTS, pointers) != AIO_REQUESTS)
        fail("io_submit");
    if (syscall(SYS_io_getevents, context, AIO_REQUESTS, AIO_REQUESTS, events, NULL) != AIO_REQUESTS)
        fail("io_getevents");
    for (int nth = 0; nth < AIO_REQUESTS; nth++)
        if (events[nth].res != AIO_LENGTH) {
            printf("round %d: a write ends with %lld\n", round, (long long)events[nth].res);
            exit(1);
        }
    compare(cached, bytes, room, round, "the cache");
    size_t at = (size_t)round * 4099 % AIO_BYTES;
    bytes[at] = (char)0xff;
    if (pwrite(cached, bytes + at, 1, (off_t)at) != 1 || fdatasync(cached) != 0)
        fail("pwrite, fdatasync");
    compare(direct, bytes, room, round, "the disk");
}

static int aio(const char *path, int rounds)
{
    int cached = open(path, O_RDWR | O_CREAT, 0644), direct = open(path, O_RDWR | O_DIRECT);
    aio_context_t context = 0;
    void *bytes, *room;
    if (cached < 0 || direct < 0 || ftruncate(cached, AIO_BYTES) != 0)
        fail(path);
    if (posix_memalign(&bytes, 4096, AIO_BYTES) != 0 || posix_memalign(&room, 4096, AIO_BYTES) != 0)
        fail("posix_memalign");
    memset(bytes, 0, AIO_BYTES);
    if (pwrite(cached, bytes, AIO_BYTES, 0) != AIO_BYTES || fsync(cached) != 0)
        fail("pwrite");
    if (syscall(SYS_io_setup, AIO_REQUESTS, &context) != 0)
        fail("io_setup");
    have_read(cached, room);
    for (int round = 0; round < rounds; round++)
        round_of_aio(context, cached, direct, bytes, room, round);
    return 0;
}

int main(int count, char **arguments)
{
    if (count >= 6 && strcmp(arguments[1], "map") == 0)
        return map(arguments + 2, count > 6);
    if (count == 3 && strcmp(arguments[1], "handle") == 0)
        return print_handle(arguments[2]);
    if (count == 4 && strcmp(arguments[1], "open") == 0)
        return open_handle(arguments[2], arguments[3]);
    if (count == 4 && strcmp(arguments[1], "aio") == 0)
        return aio(arguments[2], atoi(arguments[3]));
    if (count == 5 && strcmp(arguments[1], "ioctl") == 0)
        return ask(arguments + 2);
    if (count == 6 && strcmp(arguments[1], "idmap") == 0)
        return map_ids(arguments + 2);
    fprintf(stderr, "map, handle, open, aio, ioctl or idmap\n");
    return 2;
}
