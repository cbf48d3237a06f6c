/* Reads a file of an image, writes another one, and lists a directory: motd IMAGE */
#include <diskwright.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    dw_open_options writable = {.struct_size = sizeof writable, .flags = DW_WRITABLE};
    dw_image *image = NULL;
    dw_dir *dir = NULL;
    const dw_entry *entry;
    dw_bytes name = {0};
    dw_error *error = NULL;

    int failed = dw_open(argv[1], &writable, &image, &error)
              || dw_read_file(image, "/etc/hostname", &name, &error)
              || dw_write_file(image, "/etc/motd", name.data, name.len, &error)
              || dw_dir_open(image, "/etc", &dir, &error);
    while (!failed && !(failed = dw_dir_next(dir, &entry, &error)) && entry)
        puts(entry->name);
    if (!failed)
        failed = dw_image_close(image, &error); /* Makes all of it durable, and tells if it cannot. */
    if (failed)
        fprintf(stderr, "motd: %s\n", dw_error_message(error));

    dw_error_free(error);
    dw_bytes_free(&name);
    dw_dir_free(dir);
    dw_image_free(image);
    return failed != 0;
}
