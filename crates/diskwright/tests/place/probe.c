/* What the proofs do that cannot be done in Rust without unsafe code: mappings and file handles.
 *
 *   probe map PATH OFFSET LENGTH SEED [sync]   writes words through a shared mapping
 *   probe handle PATH                          prints a file handle
 *   probe open DIRECTORY HANDLE                prints a file of that file system, or the error's number
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    char *bytes = (char *)&handle, buffer[4096];
    for (size_t at = 0; at < sizeof handle && text[2 * at]; at++) {
        char digits[3] = { text[2 * at], text[2 * at + 1], 0 };
        bytes[at] = (char)strtoul(digits, NULL, 16);
    }
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
    fprintf(stderr, "map, handle or open\n");
    return 2;
}
