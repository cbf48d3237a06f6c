/* An image on a custom device: a buffer in memory. The image is checked at the end. */
#include <diskwright.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZE ((size_t)64 << 20)

static int memory_read(void *context, uint64_t offset, void *buffer, size_t len)
{
    memcpy(buffer, (char *)context + offset, len);
    return 0;
}

static int memory_write(void *context, uint64_t offset, const void *data, size_t len)
{
    memcpy((char *)context + offset, data, len);
    return 0;
}

static int memory_zero(void *context, uint64_t offset, uint64_t len)
{
    memset((char *)context + offset, 0, len);
    return 0;
}

static int print_finding(void *context, const dw_finding *finding)
{
    (void)context;
    printf("%s: %s\n", finding->code, finding->meaning);
    return 0;
}

static int fill(const dw_device *device, dw_error **error)
{
    static const char text[] = "kept in memory\n";
    dw_format_options format = {.struct_size = sizeof format, .format = DW_EXT4, .label = "memory"};
    dw_image *image = NULL;
    dw_file *file = NULL;
    int failed = dw_format_device(device, &format, &image, error)
              || dw_mkdir_all(image, "/a/b", error)
              || dw_file_open(image, "/a/b/text", DW_WRITE | DW_CREATE_NEW, 0600, &file, error)
              || dw_pwrite(file, (const uint8_t *)text, strlen(text), 0, error)
              || dw_file_sync(file, error)
              || dw_xattr_set(image, "/a/b/text", "user.origin", (const uint8_t *)"C", 1, error)
              || dw_image_close(image, error);
    dw_file_free(file);
    dw_image_free(image);
    return failed;
}

static int show(const dw_device *device, dw_error **error)
{
    dw_image *image = NULL;
    dw_walk *walk = NULL;
    const dw_walk_entry *entry;
    int failed = dw_open_device(device, NULL, &image, error) || dw_walk_open(image, "/", DW_SORTED, &walk, error);
    while (!failed && !(failed = dw_walk_next(walk, &entry, error)) && entry)
        printf("%06o %8llu %s\n", entry->metadata.mode, (unsigned long long)entry->metadata.size, entry->path);
    dw_walk_free(walk);
    dw_image_free(image);
    return failed;
}

int main(void)
{
    dw_error *error = NULL;
    dw_check_options check = {.struct_size = sizeof check, .finding = print_finding};
    dw_check_report report = {0};
    dw_device device = {
        .struct_size = sizeof device,
        .context = calloc(1, SIZE),
        .size = SIZE,
        .read = memory_read,
        .write = memory_write,
        .zero = memory_zero,
    };
    if (!device.context)
        return 1;
    int failed = fill(&device, &error) || show(&device, &error)
              || dw_check_device(&device, NULL, &check, &report, &error);
    if (failed)
        fprintf(stderr, "memory: %s\n", dw_error_message(error));
    else
        printf("%llu files, %llu findings\n", (unsigned long long)report.inodes,
               (unsigned long long)report.findings);
    dw_error_free(error);
    free(device.context);
    return failed || report.findings > 0;
}
