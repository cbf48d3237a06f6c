#include <diskwright.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    dw_image *image = NULL;
    dw_dir *dir = NULL;
    const dw_entry *entry;
    dw_error *error = NULL;
    int failed = dw_open(argv[argc - 1], NULL, &image, &error) || dw_dir_open(image, "/", &dir, &error);
    while (!failed && !(failed = dw_dir_next(dir, &entry, &error)) && entry)
        puts(entry->name);
    if (failed)
        fprintf(stderr, "%s\n", dw_error_message(error));
    dw_error_free(error), dw_dir_free(dir), dw_image_free(image);
    return failed;
}
