/* Misuse by callers and failures of devices: they cause errors, and no synced data is lost. */
#include "test.h"

#define SIZE ((uint64_t)16 << 20)

/* Every function refuses NULL and handles of another kind. */
static void handles(dw_image *image, dw_file *file)
{
    dw_image *wrong_image = (dw_image *)file;
    dw_file *wrong_file = (dw_file *)image;
    dw_metadata metadata;
    dw_bytes bytes;
    dw_totals totals;
    const dw_entry *entry;
    const dw_walk_entry *found;
    uint8_t byte = 0;
    size_t count;
    dw_file *opened;
    for (int i = 0; i < 2; i++) {
        dw_image *im = i ? NULL : wrong_image;
        dw_file *fi = i ? NULL : wrong_file;
        dw_dir *di = i ? NULL : (dw_dir *)image;
        dw_walk *wa = i ? NULL : (dw_walk *)image;
        FAILS(DW_BAD_HANDLE, dw_stat(im, "/", &metadata, &error));
        FAILS(DW_BAD_HANDLE, dw_lstat(im, "/", &metadata, &error));
        FAILS(DW_BAD_HANDLE, dw_mkdir(im, "/x", &error));
        FAILS(DW_BAD_HANDLE, dw_mkdir_all(im, "/x", &error));
        FAILS(DW_BAD_HANDLE, dw_unlink(im, "/x", &error));
        FAILS(DW_BAD_HANDLE, dw_rmdir(im, "/x", &error));
        FAILS(DW_BAD_HANDLE, dw_remove_all(im, "/x", &error));
        FAILS(DW_BAD_HANDLE, dw_rename(im, "/x", "/y", 0, &error));
        FAILS(DW_BAD_HANDLE, dw_link(im, "/x", "/y", &error));
        FAILS(DW_BAD_HANDLE, dw_symlink(im, "/x", "/y", &error));
        FAILS(DW_BAD_HANDLE, dw_readlink(im, "/x", &bytes, &error));
        FAILS(DW_BAD_HANDLE, dw_realpath(im, "/x", &bytes, &error));
        FAILS(DW_BAD_HANDLE, dw_chmod(im, "/x", 0, &error));
        FAILS(DW_BAD_HANDLE, dw_read_file(im, "/x", &bytes, &error));
        FAILS(DW_BAD_HANDLE, dw_write_file(im, "/x", &byte, 1, &error));
        FAILS(DW_BAD_HANDLE, dw_file_open(im, "/x", DW_READ, 0, &opened, &error));
        FAILS(DW_BAD_HANDLE, dw_statfs(im, &totals, &error));
        FAILS(DW_BAD_HANDLE, dw_sync(im, &error));
        FAILS(DW_BAD_HANDLE, dw_image_close(im, &error));
        FAILS(DW_BAD_HANDLE, dw_copy_in(im, "/x", "/y", NULL, NULL, &error));
        CHECK(dw_image_is_writable(im) == 0);
        FAILS(DW_BAD_HANDLE, dw_pread(fi, &byte, 1, 0, &count, &error));
        FAILS(DW_BAD_HANDLE, dw_pwrite(fi, &byte, 1, 0, &error));
        FAILS(DW_BAD_HANDLE, dw_file_truncate(fi, 0, &error));
        FAILS(DW_BAD_HANDLE, dw_file_sync(fi, &error));
        FAILS(DW_BAD_HANDLE, dw_file_stat(fi, &metadata, &error));
        FAILS(DW_BAD_HANDLE, dw_dir_next(di, &entry, &error));
        FAILS(DW_BAD_HANDLE, dw_walk_next(wa, &found, &error));
        FAILS(DW_BAD_HANDLE, dw_walk_skip(wa, &error));
        dw_image_free(im);
        dw_file_free(fi);
        dw_dir_free(di);
        dw_walk_free(wa);
    }
    dw_error_free((dw_error *)image);
    CHECK(dw_error_code((dw_error *)image) == DW_OK && !dw_error_structure(NULL));
    /* The handles are unchanged. */
    OK(dw_stat(image, "/", &metadata, &error));
    OK(dw_file_stat(file, &metadata, &error));
}

static void arguments(dw_image *image, dw_file *file)
{
    dw_metadata metadata;
    uint8_t byte;
    size_t count;
    dw_image *opened = image;
    dw_file *no_file;
    dw_open_options open = {.struct_size = sizeof open, .flags = 1u << 30};
    struct { dw_open_options known; uint64_t later; } longer = {.known = {.struct_size = sizeof longer}};
    FAILS(DW_INVALID, dw_stat(image, NULL, &metadata, &error));
    FAILS(DW_INVALID, dw_stat(image, "/", NULL, &error));
    FAILS(DW_NOT_FOUND, dw_stat(image, "", &metadata, &error));
    FAILS(DW_INVALID, dw_pread(file, NULL, 1, 0, &count, &error));
    FAILS(DW_INVALID, dw_pread(file, &byte, SIZE_MAX, 0, &count, &error));
    FAILS(DW_INVALID, dw_pread(file, &byte, 1, 0, NULL, &error));
    FAILS(DW_INVALID, dw_file_open(image, "/f", DW_READ | 1u << 20, 0, &no_file, &error));
    FAILS(DW_INVALID, dw_file_open(image, "/f", 0, 0, &no_file, &error));
    FAILS(DW_INVALID, dw_file_open(image, "/f", DW_READ, 0, NULL, &error));
    FAILS(DW_FILE_TOO_LARGE, dw_pwrite(file, TEXT("xx"), UINT64_MAX, &error));
    FAILS(DW_INVALID, dw_open("/nowhere", &open, &opened, &error));
    CHECK(!opened);
    FAILS(DW_NOT_FOUND, dw_open("/nowhere/at/all", NULL, &opened, &error));
    longer.later = 0;
    FAILS(DW_NOT_FOUND, dw_open("/nowhere/at/all", &longer.known, &opened, &error));
    longer.later = 1;
    FAILS(DW_INVALID, dw_open("/nowhere/at/all", &longer.known, &opened, &error));
    open.struct_size = 3;
    FAILS(DW_INVALID, dw_open("/nowhere/at/all", &open, &opened, &error));
    FAILS(DW_INVALID, dw_open(NULL, NULL, &opened, &error));
    FAILS(DW_INVALID, dw_open_device(NULL, NULL, &opened, &error));
    FAILS(DW_INVALID, dw_build(NULL, 0, "/nowhere/x.img", NULL, NULL, &error));
    /* The error argument is optional. */
    CHECK(dw_stat(image, "/none", &metadata, NULL) == DW_NOT_FOUND);
    dw_error *error = NULL;
    CHECK(dw_unlink(image, "/gone/file", &error) == DW_NOT_FOUND);
    CHECK(dw_error_errno(error) == ENOENT && strstr(dw_error_message(error), "/gone/file"));
    CHECK(!strcmp(dw_error_path(error), "/gone/file") && !dw_error_structure(error));
    CHECK(dw_error_place(error, NULL) == 0);
    dw_error_free(error);
}

/* Calls with handles of a closed image report that it is closed. */
static void closed(void)
{
    struct memory *memory = memory_new(SIZE);
    dw_image *image = memory_image(memory, DW_EXT4);
    dw_file *file;
    dw_dir *dir;
    dw_walk *walk;
    dw_metadata metadata;
    const dw_entry *entry;
    const dw_walk_entry *found;
    uint8_t byte = 1;
    size_t count;
    OK(dw_file_open(image, "/f", DW_READ | DW_WRITE | DW_CREATE, 0644, &file, &error));
    OK(dw_dir_open(image, "/", &dir, &error));
    OK(dw_walk_open(image, "/", 0, &walk, &error));
    OK(dw_walk_next(walk, &found, &error));
    OK(dw_image_close(image, &error));
    OK(dw_image_close(image, &error));
    FAILS(DW_CLOSED, dw_stat(image, "/", &metadata, &error));
    FAILS(DW_CLOSED, dw_mkdir(image, "/d", &error));
    FAILS(DW_CLOSED, dw_sync(image, &error));
    FAILS(DW_CLOSED, dw_pread(file, &byte, 1, 0, &count, &error));
    FAILS(DW_CLOSED, dw_pwrite(file, &byte, 1, 0, &error));
    FAILS(DW_CLOSED, dw_file_sync(file, &error));
    FAILS(DW_CLOSED, dw_walk_next(walk, &found, &error));
    dw_error *error = NULL;
    int code;
    while ((code = dw_dir_next(dir, &entry, &error)) == DW_OK && entry)
        ;
    CHECK(code == DW_OK || code == DW_CLOSED);
    dw_error_free(error);
    dw_image_free(image);
    dw_walk_free(walk);
    dw_file_free(file);
    dw_dir_free(dir);
    CHECK(memory->releases == 1);
    memory_check(memory);
    memory_free(memory);
}

/* The errno of a failing device is returned, and synced data is intact when the device works again. */
static void devices(void)
{
    struct memory *memory = memory_new(SIZE);
    dw_image *image = memory_image(memory, DW_EXT4);
    dw_device device = memory_device(memory);
    dw_bytes bytes;
    char path[32];
    int code = 0;
    OK(dw_write_file(image, "/kept", TEXT("kept"), &error));
    OK(dw_sync(image, &error));
    memory->fails_with = ENODEV;
    for (int i = 0; i < 100 && !code; i++) {
        snprintf(path, sizeof path, "/lost%d", i);
        dw_error *error = NULL;
        if (!(code = dw_write_file(image, path, TEXT("lost"), &error)))
            code = dw_sync(image, &error);
        if (code)
            CHECK(dw_error_errno(error) == ENODEV || dw_error_code(error) == DW_READ_ONLY);
        dw_error_free(error);
    }
    CHECK(code);
    CHECK(dw_image_close(image, NULL) != DW_OK);
    dw_image_free(image);
    memory->fails_with = 0;
    memory_check(memory);
    OK(dw_open_device(&device, NULL, &image, &error));
    OK(dw_read_file(image, "/kept", &bytes, &error));
    CHECK(!strcmp((char *)bytes.data, "kept"));
    dw_bytes_free(&bytes);
    dw_image_free(image);

    /* The second half is unreadable; then everything; then the device reports a smaller size; then it has no image. */
    unsigned releases = memory->releases;
    memory->is_short = 1;
    image = NULL;
    if (dw_open_device(&device, NULL, &image, NULL) == DW_OK)
        dw_image_free(image);
    memory->is_short = 0;
    memory->fails_with = -ETIMEDOUT;
    dw_error *error = NULL;
    CHECK(dw_open_device(&device, NULL, &image, &error) == DW_IO && !image);
    CHECK(dw_error_errno(error) == ETIMEDOUT);
    dw_error_free(error);
    memory->fails_with = 0;
    device.size = 4096;
    CHECK(dw_open_device(&device, NULL, &image, NULL) != DW_OK);
    device.size = 0;
    CHECK(dw_open_device(&device, NULL, &image, NULL) != DW_OK);
    device.size = SIZE;
    memset(memory->bytes, 0, SIZE);
    FAILS(DW_UNSUPPORTED, dw_open_device(&device, NULL, &image, &error));
    CHECK(memory->releases == releases + 5);
    device.read = NULL;
    FAILS(DW_INVALID, dw_open_device(&device, NULL, &image, &error));
    CHECK(memory->releases == releases + 5);
    memory_free(memory);
}

/* Damage is reported with structure and location. */
static void damage(void)
{
    struct memory *memory = memory_new(SIZE);
    dw_image *image = memory_image(memory, DW_EXT4);
    dw_device device = memory_device(memory);
    dw_metadata metadata;
    dw_check_report report;
    dw_place place;
    OK(dw_write_file(image, "/f", TEXT("f"), &error));
    OK(dw_stat(image, "/f", &metadata, &error));
    OK(dw_image_close(image, &error));
    dw_image_free(image);
    /* Flips bits of the first MiB until the file is damaged, because the location of its inode depends on the options. */
    int is_found = 0;
    for (size_t at = 4096; at < (1 << 20) && !is_found; at += 64) {
        char before = memory->bytes[at];
        if (!before)
            continue;
        memory->bytes[at] ^= 0x55;
        dw_error *error = NULL;
        if (dw_open_device(&device, NULL, &image, NULL) == DW_OK) {
            if (dw_stat(image, "/f", &metadata, &error) == DW_DAMAGED) {
                is_found = 1;
                CHECK(dw_error_errno(error) == EIO && *dw_error_structure(error));
                CHECK(dw_error_place(error, &place) == 1);
                CHECK(place.block != DW_NONE || place.inode != DW_NONE || place.group != DW_NONE);
                OK(dw_check_device(&device, NULL, NULL, &report, &error));
                CHECK(report.findings > 0);
            }
            dw_error_free(error);
            dw_image_free(image);
        }
        memory->bytes[at] = before;
    }
    CHECK(is_found);
    memory_check(memory);
    memory_free(memory);
}

static int stop_at_once(void *context, uint64_t done, uint64_t total)
{
    (void)done;
    (void)total;
    ++*(int *)context;
    return 1;
}

/* A progress function can cancel the check. */
static void stopping(void)
{
    struct memory *memory = memory_new(SIZE);
    dw_image_free(memory_image(memory, DW_EXT4));
    dw_device device = memory_device(memory);
    int calls = 0;
    dw_check_options how = {.struct_size = sizeof how, .context = &calls, .progress = stop_at_once};
    FAILS(DW_STOPPED, dw_check_device(&device, NULL, &how, NULL, &error));
    CHECK(calls == 1);
    memory_free(memory);
}

int main(void)
{
    struct memory *memory = memory_new(SIZE);
    dw_image *image = memory_image(memory, DW_EXT4);
    dw_file *file;
    OK(dw_file_open(image, "/f", DW_READ | DW_WRITE | DW_CREATE, 0644, &file, &error));
    handles(image, file);
    arguments(image, file);
    /* The image is freed first, and nothing is lost. */
    OK(dw_pwrite(file, TEXT("late"), 0, &error));
    dw_image_free(image);
    CHECK(memory->releases == 0);
    OK(dw_pwrite(file, TEXT("later"), 0, &error));
    dw_file_free(file);
    CHECK(memory->releases == 1);
    memory_check(memory);
    memory_free(memory);
    closed();
    devices();
    damage();
    stopping();
    puts("misuse: ok");
    return 0;
}
