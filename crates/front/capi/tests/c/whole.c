/* Calls that work on whole images: build, info, copying, diff, convert, check, repair: whole DIRECTORY */
#include "test.h"

static char directory[1024];

/* Returns a path in the given directory. The last four results are valid. */
static const char *in(const char *name)
{
    static char paths[4][1200];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], sizeof paths[next], "%s/%s", directory, name);
    return paths[next];
}

static int stop_after_ten(void *context, uint64_t done, uint64_t bytes)
{
    (void)bytes;
    ++*(int *)context;
    return done >= 10;
}

static int count_changes(void *context, const dw_change *change)
{
    CHECK(strlen(change->line) > 2 && change->kind >= DW_ADDED && change->kind <= DW_MODIFIED);
    ++*(int *)context;
    return 0;
}

static int stop_at_change(void *context, const dw_change *change)
{
    (void)context;
    (void)change;
    return 1;
}

static int see_finding(void *context, const dw_finding *finding)
{
    CHECK(!strncmp(finding->code, "ext4-", 5) && *finding->meaning && *finding->repair && *finding->structure);
    CHECK(finding->severity <= DW_UNUSABLE);
    ++*(int *)context;
    return 0;
}

static void write_host(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && !fclose(file));
}

static void build(void)
{
    char name[64], source[1200], other[1200];
    snprintf(source, sizeof source, "%s/source", directory);
    snprintf(other, sizeof other, "%s/other", directory);
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "source/file%d", i);
        write_host(in(name), name);
    }
    write_host(in("other/file7"), "another one");
    int asked = 0;
    uint8_t uuid[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    int64_t epoch = 1000000000;
    const char *sources[] = {source, other};
    dw_build_options how = {.struct_size = sizeof how, .format = DW_EXT4, .free = 4 << 20, .label = "built",
                            .features = "^has_journal,+large_dir", .uuid = uuid, .source_date_epoch = &epoch,
                            .context = &asked, .progress = stop_after_ten};
    dw_build_report report = {0};
    FAILS(DW_STOPPED, dw_build(sources, 1, in("a.img"), &how, &report, &error));
    CHECK(asked > 1);
    FILE *left = fopen(in("a.img"), "r");
    CHECK(!left);
    how.progress = NULL;
    OK(dw_build(sources, 2, in("a.img"), &how, &report, &error));
    CHECK(report.entries >= 51 && report.image_bytes > 1 << 20);
    FAILS(DW_EXISTS, dw_build(sources, 1, in("a.img"), &how, &report, &error));
    how.features = "^^^";
    FAILS(DW_INVALID, dw_build(sources, 1, in("b.img"), &how, NULL, &error));
    how.features = NULL;
    how.format = 9;
    FAILS(DW_INVALID, dw_build(sources, 1, in("b.img"), &how, NULL, &error));
    sources[0] = in("nothing");
    how.format = DW_EXT4;
    FAILS(DW_NOT_FOUND, dw_build(sources, 1, in("b.img"), &how, NULL, &error));

    dw_info info;
    OK(dw_read_info(in("a.img"), NULL, &info, &error));
    CHECK(!strcmp(info.label, "built") && !strcmp(info.uuid, "01020304-0506-0708-090a-0b0c0d0e0f10"));
    CHECK(!strncmp(info.format, "ext", 3) && !strcmp(info.state, "clean") && !info.needs_recovery);
    CHECK(info.blocks * info.block_size == report.image_bytes);
}

static void copy(void)
{
    dw_open_options open = {.struct_size = sizeof open, .flags = DW_WRITABLE, .uid = 3};
    dw_copy_options how = {.struct_size = sizeof how};
    dw_copy_report report;
    dw_metadata metadata;
    dw_bytes bytes;
    dw_image *image, *second;
    int asked = 0;
    OK(dw_open(in("a.img"), &open, &image, &error));
    FAILS(DW_IN_USE, dw_open(in("a.img"), &open, &second, &error));
    CHECK(!second);
    OK(dw_read_file(image, "/file7", &bytes, &error));
    CHECK(!strcmp((char *)bytes.data, "another one"));
    dw_bytes_free(&bytes);
    write_host(in("one"), "one");
    OK(dw_copy_in(image, in("one"), "/copied", NULL, &report, &error));
    CHECK(report.files == 1 && report.bytes == 3);
    OK(dw_stat(image, "/copied", &metadata, &error));
    CHECK(metadata.uid == 3 && metadata.size == 3);
    FAILS(DW_INVALID, dw_copy_in(image, in("source"), "/tree", NULL, &report, &error));
    how.flags = DW_RECURSIVE | DW_PRESERVE;
    OK(dw_copy_in(image, in("source"), "/tree", &how, &report, &error));
    CHECK(report.files == 51);
    OK(dw_copy_out(image, "/tree", in("out"), &how, &report, &error));
    CHECK(report.files == 51);
    how.flags = 0;
    OK(dw_copy_out(image, "/tree/file3", in("single"), &how, &report, &error));
    how.flags = DW_RECURSIVE;
    how.context = &asked;
    how.progress = stop_after_ten;
    FAILS(DW_STOPPED, dw_copy_in(image, in("source"), "/half", &how, &report, &error));
    how.flags = DW_PLAIN;
    FAILS(DW_STOPPED, dw_extract(image, "/tree", in("half"), &how, &report, &error));
    how.progress = NULL;
    OK(dw_extract(image, "/tree", in("extracted"), &how, &report, &error));
    CHECK(report.files == 51);
    how.flags = DW_RECURSIVE;
    FAILS(DW_INVALID, dw_extract(image, "/tree", in("more"), &how, &report, &error));
    OK(dw_image_close(image, &error));
    dw_image_free(image);
}

static void compare(void)
{
    int changes = 0;
    dw_diff_report report;
    dw_diff_options how = {.struct_size = sizeof how, .context = &changes, .change = count_changes,
                           .ignored = DW_IGNORE_TIMES | DW_IGNORE_OWNER | DW_IGNORE_MODE};
    dw_convert_options convert = {.struct_size = sizeof convert, .format = DW_XFS, .flags = DW_CONVERT_SMALL, .size = 64 << 20};
    OK(dw_convert(in("a.img"), in("a.xfs"), &convert, NULL, &error));
    FAILS(DW_EXISTS, dw_convert(in("a.img"), in("a.xfs"), &convert, NULL, &error));
    OK(dw_diff(in("a.img"), NULL, in("a.xfs"), NULL, &how, &report, &error));
    CHECK(report.added + report.removed + report.modified == 0 && !changes);
    OK(dw_diff(in("a.img"), NULL, in("source"), NULL, &how, &report, &error));
    CHECK(report.removed > 0 && report.modified == 1 && changes > 1);
    how.change = stop_at_change;
    FAILS(DW_STOPPED, dw_diff(in("a.img"), NULL, in("source"), NULL, &how, NULL, &error));
}

static void write_name(const char *path, const char *text)
{
    dw_image *image = NULL;
    dw_open_options how = {.struct_size = sizeof how, .flags = DW_WRITABLE};
    OK(dw_open(path, &how, &image, &error));
    OK(dw_write_file(image, "/name", (const uint8_t *)text, strlen(text), &error));
    OK(dw_image_close(image, &error));
    dw_image_free(image);
}

static int has_name(const char *path, const char *text)
{
    dw_image *image = NULL;
    dw_bytes contents;
    OK(dw_open(path, NULL, &image, &error));
    OK(dw_read_file(image, "/name", &contents, &error));
    int same = contents.len == strlen(text) && !memcmp(contents.data, text, contents.len);
    dw_bytes_free(&contents);
    dw_image_free(image);
    return same;
}

static void clones(void)
{
    write_name(in("a.img"), "base");
    OK(dw_clone(in("a.img"), in("clone"), 0, &error));
    FAILS(DW_EXISTS, dw_clone(in("a.img"), in("clone"), 0, &error));
    write_name(in("clone"), "first");
    OK(dw_snapshot(in("clone"), in("first"), &error));
    write_name(in("clone"), "lost");
    OK(dw_reset(in("clone"), NULL, &error));
    CHECK(has_name(in("clone"), "first"));
    OK(dw_reset(in("clone"), in("first"), &error));
    OK(dw_commit(in("clone"), in("committed"), NULL, 0, &error));
    CHECK(has_name(in("committed"), "first") && has_name(in("a.img"), "base"));
    OK(dw_reset_to_base(in("clone"), &error));
    CHECK(has_name(in("clone"), "base") && has_name(in("first"), "first"));
}

static void damage(void)
{
    dw_check_report checked;
    dw_repair_report repaired;
    int findings = 0;
    dw_check_options check = {.struct_size = sizeof check, .threads = 2, .context = &findings, .finding = see_finding};
    dw_repair_options repair = {.struct_size = sizeof repair, .flags = DW_REPAIR_PLAN_ONLY, .undo = in("undo")};
    OK(dw_check(in("a.img"), NULL, &check, &checked, &error));
    CHECK(!checked.findings && !findings && checked.is_complete && checked.inodes > 100);
    /* A byte of an inode in use: the inode table follows the group descriptors and bitmaps. */
    FILE *file = fopen(in("a.img"), "r+");
    unsigned char byte;
    CHECK(file && !fseek(file, 1024 + 0x10, SEEK_SET) && fread(&byte, 1, 1, file) == 1);
    byte ^= 0x7f; /* The count of free inodes in the superblock. */
    CHECK(!fseek(file, 1024 + 0x10, SEEK_SET) && fwrite(&byte, 1, 1, file) == 1 && !fclose(file));
    OK(dw_check(in("a.img"), NULL, &check, &checked, &error));
    CHECK(checked.findings > 0 && (uint64_t)findings == checked.findings);
    OK(dw_repair(in("a.img"), NULL, &repair, &repaired, &error));
    CHECK(repaired.findings > 0 && repaired.steps > 0 && repaired.is_clean && !repaired.has_undo);
    repair.flags = 0;
    repair.undo = in("undo");
    OK(dw_repair(in("a.img"), NULL, &repair, &repaired, &error));
    CHECK(repaired.is_clean && repaired.has_undo && !repaired.left);
    OK(dw_check(in("a.img"), NULL, NULL, &checked, &error));
    CHECK(!checked.findings);
    OK(dw_restore(in("undo"), in("a.img"), NULL, &error));
    OK(dw_check(in("a.img"), NULL, NULL, &checked, &error));
    CHECK(checked.findings > 0);
    FAILS(DW_FAILED, dw_restore(in("one"), in("a.img"), NULL, &error));
    FAILS(DW_UNSUPPORTED, dw_check(in("one"), NULL, NULL, &checked, &error));
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    snprintf(directory, sizeof directory, "%s", argv[1]);
    build();
    copy();
    compare();
    clones();
    damage();
    puts("whole: ok");
    return 0;
}
