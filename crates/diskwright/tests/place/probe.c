/* What the proofs do that cannot be done in Rust without unsafe code: mappings and file handles.
 *
 *   probe map PATH OFFSET LENGTH SEED [sync]   writes words through a shared mapping
 *   probe handle PATH                          prints a file handle
 *   probe open DIRECTORY HANDLE                prints a file of that file system, or the error's number
 *   probe ioctl PATH NUMBER DATA               asks with these bytes (hexadecimal), and prints what they are
 *                                              then, or the error's number
 *   probe idmap SOURCE TARGET FIRST COUNT      mounts a mount again, its ids 0 to COUNT shown from FIRST on
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of <linux/mount.h>, which not every libc has. */
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

/* A user namespace, kept by its open file. */
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

int main(int count, char **arguments)
{
    if (count >= 6 && strcmp(arguments[1], "map") == 0)
        return map(arguments + 2, count > 6);
    if (count == 3 && strcmp(arguments[1], "handle") == 0)
        return print_handle(arguments[2]);
    if (count == 4 && strcmp(arguments[1], "open") == 0)
        return open_handle(arguments[2], arguments[3]);
    if (count == 5 && strcmp(arguments[1], "ioctl") == 0)
        return ask(arguments + 2);
    if (count == 6 && strcmp(arguments[1], "idmap") == 0)
        return map_ids(arguments + 2);
    fprintf(stderr, "map, handle, open, ioctl or idmap\n");
    return 2;
}
