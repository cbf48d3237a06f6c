/* Measures three calls, like examples/speed.rs for Rust: speed IMAGE CALLS, or speed --make IMAGE. */
#include "test.h"
#include <time.h>

#define FILE_BYTES ((uint64_t)16 << 20)
#define PIECE_BYTES ((uint64_t)4 << 10)
#define NAMES 10000

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static void tell(const char *what, double start, uint64_t calls)
{
    printf("%s %.1f\n", what, (now() - start) / calls);
}

static void make(const char *path)
{
    dw_format_options format = {.struct_size = sizeof format, .format = DW_EXT4};
    dw_image *image;
    char name[64];
    uint8_t *bytes = malloc(FILE_BYTES);
    CHECK(bytes);
    memset(bytes, 0xa5, FILE_BYTES);
    OK(dw_create(path, (uint64_t)256 << 20, &format, &image, &error));
    OK(dw_write_file(image, "/file", bytes, FILE_BYTES, &error));
    OK(dw_mkdir_all(image, "/dir/sub", &error));
    OK(dw_write_file(image, "/dir/sub/name", TEXT("x"), &error));
    OK(dw_mkdir(image, "/names", &error));
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "/names/a-name-%05d", i);
        OK(dw_write_file(image, name, NULL, 0, &error));
    }
    OK(dw_image_close(image, &error));
    dw_image_free(image);
    free(bytes);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    if (!strcmp(argv[1], "--make")) {
        make(argv[2]);
        return 0;
    }
    uint64_t calls = strtoull(argv[2], NULL, 10), sum = 0, place = 0, names = 0;
    static uint8_t buffer[PIECE_BYTES];
    dw_image *image;
    dw_file *file;
    dw_dir *dir;
    const dw_entry *entry;
    dw_metadata metadata;
    size_t count;
    OK(dw_open(argv[1], NULL, &image, &error));
    OK(dw_file_open(image, "/file", DW_READ, 0, &file, &error));
    double start = now();
    for (uint64_t i = 0; i < calls; i++) {
        place = (place + 7919 * PIECE_BYTES) % FILE_BYTES;
        OK(dw_pread(file, buffer, PIECE_BYTES, place, &count, &error));
        sum += count;
    }
    tell("pread", start, calls);
    CHECK(sum == calls * PIECE_BYTES && buffer[17] == 0xa5);

    start = now();
    for (uint64_t i = 0; i < calls; i++) {
        OK(dw_stat(image, "/dir/sub/name", &metadata, &error));
        sum += metadata.size;
    }
    tell("stat", start, calls);

    start = now();
    while (names < calls) {
        OK(dw_dir_open(image, "/names", &dir, &error));
        for (;;) {
            OK(dw_dir_next(dir, &entry, &error));
            if (!entry)
                break;
            sum += entry->name_len;
            names++;
        }
        dw_dir_free(dir);
    }
    tell("list", start, names);
    CHECK(sum);
    dw_file_free(file);
    dw_image_free(image);
    return 0;
}
