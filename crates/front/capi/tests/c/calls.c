/* Every call that works on an open image, on both formats. */
#include "test.h"

#define SIZE ((uint64_t)64 << 20)

static void files(dw_image *image)
{
    dw_file *file = NULL;
    uint8_t buffer[64];
    size_t count = 99;
    dw_metadata metadata;
    dw_time time = {.sec = -5, .nsec = 7};
    OK(dw_mkdir_all(image, "/srv/www", &error));
    OK(dw_file_open(image, "/srv/www/index", DW_READ | DW_WRITE | DW_CREATE_NEW, 0640, &file, &error));
    OK(dw_pwrite(file, TEXT("hello, world"), 0, &error));
    OK(dw_pwrite(file, TEXT("W"), 7, &error));
    OK(dw_pread(file, buffer, sizeof buffer, 0, &count, &error));
    CHECK(count == 12 && !memcmp(buffer, "hello, World", 12));
    OK(dw_pread(file, buffer, 5, 7, &count, &error));
    CHECK(count == 5 && !memcmp(buffer, "World", 5));
    OK(dw_pread(file, buffer, 5, 100, &count, &error));
    CHECK(count == 0);
    OK(dw_pread(file, NULL, 0, 0, &count, &error));
    OK(dw_file_truncate(file, 5, &error));
    OK(dw_file_sync_data(file, &error));
    OK(dw_file_chmod(file, 0600, &error));
    OK(dw_file_chown(file, 12, DW_KEEP, &error));
    OK(dw_file_utimes(file, NULL, &time, NULL, &error));
    OK(dw_file_xattr_set(file, "user.a", TEXT("b"), &error));
    OK(dw_file_sync(file, &error));
    OK(dw_file_stat(file, &metadata, &error));
    CHECK(metadata.size == 5 && metadata.mode == 0100600 && metadata.uid == 12 && metadata.gid == 0);
    CHECK(metadata.mtime.sec == -5 && metadata.nlink == 1 && metadata.ino > 0);
    /* The file remains usable without a name. */
    OK(dw_unlink(image, "/srv/www/index", &error));
    FAILS(DW_NOT_FOUND, dw_stat(image, "/srv/www/index", &metadata, &error));
    OK(dw_pread(file, buffer, sizeof buffer, 0, &count, &error));
    CHECK(count == 5);
    dw_file_free(file);

    OK(dw_file_open(image, "/log", DW_APPEND | DW_CREATE, 0644, &file, &error));
    OK(dw_pwrite(file, TEXT("one,"), 0, &error));
    OK(dw_pwrite(file, TEXT("two"), 0, &error));
    FAILS(DW_NOT_OPEN_FOR, dw_pread(file, buffer, 1, 0, &count, &error));
    dw_file_free(file);
    dw_bytes contents;
    OK(dw_read_file(image, "log", &contents, &error));
    CHECK(contents.len == 7 && !strcmp((char *)contents.data, "one,two"));
    dw_bytes_free(&contents);
    CHECK(!contents.data && !contents.len);
    dw_bytes_free(&contents);
    uint64_t copied = 0;
    OK(dw_copy_file(image, "log", "log2", &copied, &error));
    CHECK(copied == 7);
    OK(dw_write_file(image, "log2", NULL, 0, &error));
    OK(dw_stat(image, "log2", &metadata, &error));
    CHECK(metadata.size == 0);
}

static void names(dw_image *image)
{
    dw_metadata metadata;
    dw_bytes bytes;
    OK(dw_mkdir(image, "/d", &error));
    FAILS(DW_EXISTS, dw_mkdir(image, "/d", &error));
    FAILS(DW_NOT_FOUND, dw_mkdir(image, "/x/y", &error));
    OK(dw_write_file(image, "/d/a", TEXT("a"), &error));
    OK(dw_link(image, "/d/a", "/d/b", &error));
    OK(dw_symlink(image, "d/a", "/link", &error));
    OK(dw_readlink(image, "/link", &bytes, &error));
    CHECK(!strcmp((char *)bytes.data, "d/a") && bytes.len == 3);
    dw_bytes_free(&bytes);
    OK(dw_realpath(image, "link", &bytes, &error));
    CHECK(!strcmp((char *)bytes.data, "/d/a"));
    dw_bytes_free(&bytes);
    OK(dw_stat(image, "/link", &metadata, &error));
    CHECK(metadata.mode == 0100644 && metadata.nlink == 2);
    OK(dw_lstat(image, "/link", &metadata, &error));
    CHECK(metadata.mode == 0120777);
    OK(dw_lstat(image, "/d", &metadata, &error));
    CHECK(metadata.mode == 040755);
    FAILS(DW_INVALID, dw_readlink(image, "/d/a", &bytes, &error));
    OK(dw_mknod(image, "/disk", 0060660, 8, 1, &error));
    OK(dw_stat(image, "/disk", &metadata, &error));
    CHECK(metadata.mode == 0060660 && metadata.rdev_major == 8 && metadata.rdev_minor == 1);
    FAILS(DW_INVALID, dw_mknod(image, "/no", 0100644, 0, 0, &error));
    OK(dw_rename(image, "/d/a", "/d/c", 0, &error));
    FAILS(DW_EXISTS, dw_rename(image, "/d/c", "/d/b", DW_RENAME_NOREPLACE, &error));
    OK(dw_rename(image, "/disk", "/d/c", DW_RENAME_EXCHANGE, &error));
    OK(dw_stat(image, "/disk", &metadata, &error));
    CHECK(metadata.mode == 0100644);
    FAILS(DW_INVALID, dw_rename(image, "/d/c", "/d/b", 77, &error));
    FAILS(DW_IS_A_DIRECTORY, dw_unlink(image, "/d", &error));
    FAILS(DW_NOT_EMPTY, dw_rmdir(image, "/d", &error));
    FAILS(DW_NOT_A_DIRECTORY, dw_rmdir(image, "/link", &error));
    OK(dw_remove_all(image, "/d", &error));
    OK(dw_mkdir(image, "/d", &error));
    OK(dw_rmdir(image, "/d", &error));
}

static void attributes(dw_image *image)
{
    dw_metadata metadata;
    dw_bytes bytes;
    dw_time early = {.sec = 1, .nsec = 2}, late = {.sec = 1000000000, .nsec = 999999999};
    dw_time wrong = {.sec = 1, .nsec = 1000000000};
    OK(dw_write_file(image, "/f", TEXT("f"), &error));
    OK(dw_symlink(image, "f", "/l", &error));
    OK(dw_chmod(image, "/l", 04711, &error));
    OK(dw_chown(image, "/l", 5, 6, 0, &error));
    OK(dw_chown(image, "/l", 7, DW_KEEP, DW_NOFOLLOW, &error));
    OK(dw_utimes(image, "/l", &early, &late, NULL, 0, &error));
    OK(dw_utimes(image, "/l", NULL, &early, NULL, DW_NOFOLLOW, &error));
    FAILS(DW_INVALID, dw_utimes(image, "/f", &wrong, NULL, NULL, 0, &error));
    FAILS(DW_INVALID, dw_chmod(image, "/f", 0100000, &error));
    OK(dw_stat(image, "/f", &metadata, &error));
    CHECK(metadata.uid == 5 && metadata.gid == 6 && metadata.mode == 0100711);
    CHECK(metadata.atime.sec == 1 && metadata.atime.nsec == 2);
    CHECK(metadata.mtime.sec == 1000000000 && metadata.mtime.nsec == 999999999);
    OK(dw_lstat(image, "/l", &metadata, &error));
    CHECK(metadata.uid == 7 && metadata.gid == 0 && metadata.mtime.sec == 1);
    OK(dw_xattr_set(image, "/f", "user.one", TEXT("1"), &error));
    OK(dw_xattr_set(image, "/f", "user.empty", NULL, 0, &error));
    OK(dw_xattr_get(image, "/f", "user.one", &bytes, &error));
    CHECK(bytes.len == 1 && bytes.data[0] == '1');
    dw_bytes_free(&bytes);
    OK(dw_xattr_get(image, "/f", "user.empty", &bytes, &error));
    CHECK(bytes.len == 0 && bytes.data && !*bytes.data);
    dw_bytes_free(&bytes);
    OK(dw_xattr_list(image, "/f", &bytes, &error));
    CHECK(bytes.len == 20 && !memcmp(bytes.data, "user.empty\0user.one\0", 20));
    dw_bytes_free(&bytes);
    OK(dw_xattr_remove(image, "/f", "user.one", &error));
    FAILS(DW_NO_ATTRIBUTE, dw_xattr_get(image, "/f", "user.one", &bytes, &error));
    CHECK(!bytes.data);
    FAILS(DW_NO_ATTRIBUTE, dw_xattr_remove(image, "/f", "user.one", &error));
    dw_file *file;
    OK(dw_file_open(image, "/f", DW_READ, 0, &file, &error));
    OK(dw_file_xattr_list(file, &bytes, &error));
    CHECK(!strcmp((char *)bytes.data, "user.empty"));
    dw_bytes_free(&bytes);
    OK(dw_file_xattr_get(file, "user.empty", &bytes, &error));
    dw_bytes_free(&bytes);
    OK(dw_file_xattr_remove(file, "user.empty", &error));
    FAILS(DW_NO_ATTRIBUTE, dw_file_xattr_get(file, "user.empty", &bytes, &error));
    dw_file_free(file);
}

static void listings(dw_image *image)
{
    dw_dir *dir;
    dw_walk *walk;
    const dw_entry *entry;
    const dw_walk_entry *found;
    char name[64];
    int names = 0, files = 0, skipped = 0;
    OK(dw_mkdir_all(image, "/list/sub", &error));
    OK(dw_write_file(image, "/list/sub/deep", TEXT("12"), &error));
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "/list/file %03d", i);
        OK(dw_write_file(image, name, TEXT("1"), &error));
    }
    OK(dw_dir_open(image, "/list", &dir, &error));
    for (;;) {
        OK(dw_dir_next(dir, &entry, &error));
        if (!entry)
            break;
        CHECK(strlen(entry->name) == entry->name_len && entry->ino > 0);
        CHECK(entry->mode == (strcmp(entry->name, "sub") ? 0100000u : 0040000u));
        names++;
    }
    CHECK(names == 201);
    OK(dw_dir_next(dir, &entry, &error));
    CHECK(!entry);
    dw_dir_free(dir);
    FAILS(DW_NOT_A_DIRECTORY, dw_dir_open(image, "/list/file 000", &dir, &error));
    CHECK(!dir);

    for (int skip = 0; skip < 2; skip++) {
        int *count = skip ? &skipped : &files;
        char last[64] = "";
        OK(dw_walk_open(image, "/list", DW_SORTED, &walk, &error));
        for (;;) {
            OK(dw_walk_next(walk, &found, &error));
            if (!found)
                break;
            CHECK(strlen(found->path) == found->path_len && strcmp(last, found->path) < 0);
            CHECK(!*found->name || !strcmp(strrchr(found->path, '/') + 1, found->name));
            strcpy(last, found->path);
            if (skip && !strcmp(found->name, "sub"))
                OK(dw_walk_skip(walk, &error));
            ++*count;
        }
        dw_walk_free(walk);
    }
    CHECK(files == 203 && skipped == 202);
    OK(dw_walk_open(image, "/nowhere", 0, &walk, &error));
    FAILS(DW_NOT_FOUND, dw_walk_next(walk, &found, &error));
    OK(dw_walk_next(walk, &found, &error));
    CHECK(!found);
    dw_walk_free(walk);
}

static void whole(dw_image *image)
{
    dw_totals before, after;
    dw_bytes label;
    CHECK(dw_image_is_writable(image) == 1);
    OK(dw_statfs(image, &before, &error));
    CHECK(before.block_size >= 1024 && before.blocks_free > 0 && before.blocks >= before.blocks_free);
    OK(dw_write_file(image, "/more", TEXT("more"), &error));
    OK(dw_sync(image, &error));
    OK(dw_statfs(image, &after, &error));
    CHECK(after.blocks_free < before.blocks_free && after.name_len_max == 255);
    OK(dw_label(image, &label, &error));
    CHECK(!strcmp((char *)label.data, "test"));
    dw_bytes_free(&label);
    OK(dw_set_label(image, "other", &error));
    FAILS(DW_INVALID, dw_set_label(image, "much longer than any label can be", &error));
}

int main(void)
{
    CHECK(dw_version_number() == DW_VERSION_MAJOR * 1000000 + DW_VERSION_MINOR * 1000 + DW_VERSION_PATCH);
    CHECK(strlen(dw_version()) >= 5);
    uint32_t formats[] = {DW_EXT4, DW_XFS};
    for (int i = 0; i < 2; i++) {
        struct memory *memory = memory_new(SIZE);
        dw_image *image = memory_image(memory, formats[i]);
        files(image);
        names(image);
        attributes(image);
        listings(image);
        whole(image);
        OK(dw_image_close(image, &error));
        CHECK(memory->releases == 1);
        dw_image_free(image);
        CHECK(memory->releases == 1);
        memory_check(memory);
        dw_device device = memory_device(memory);
        OK(dw_open_device(&device, NULL, &image, &error));
        CHECK(dw_image_is_writable(image) == 0);
        FAILS(DW_READ_ONLY, dw_mkdir(image, "/new", &error));
        dw_bytes contents;
        OK(dw_read_file(image, "/more", &contents, &error));
        CHECK(contents.len == 4);
        dw_bytes_free(&contents);
        dw_image_free(image);
        CHECK(memory->releases == 2);
        memory_free(memory);
    }
    puts("calls: ok");
    return 0;
}
