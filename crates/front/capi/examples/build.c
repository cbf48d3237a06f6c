/* Builds an image from a directory or an archive, and checks it: build SOURCE IMAGE [ext4|xfs] */
#include <diskwright.h>
#include <stdio.h>
#include <string.h>

static int show_progress(void *context, uint64_t entries, uint64_t bytes)
{
    uint64_t *most = context;
    (void)bytes;
    if (entries > *most)
        *most = entries;
    return 0; /* Anything else ends the build, and nothing is left of it. */
}

static int print_finding(void *context, const dw_finding *finding)
{
    (void)context;
    printf("%s: %s%s%s\n", finding->code, finding->meaning, finding->path ? " " : "",
           finding->path ? finding->path : "");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: build SOURCE IMAGE [ext4|xfs]\n");
        return 2;
    }
    uint64_t most = 0;
    int is_xfs = argc > 3 && !strcmp(argv[3], "xfs");
    const char *sources[] = {argv[1]};
    dw_build_options how = {
        .struct_size = sizeof how,
        .format = is_xfs ? DW_XFS : DW_EXT4,
        .flags = DW_BUILD_FORCE | DW_BUILD_OWNER | (is_xfs ? DW_BUILD_SMALL : 0),
        .context = &most,
        .progress = show_progress,
    };
    dw_check_options check = {.struct_size = sizeof check, .finding = print_finding};
    dw_build_report built = {0};
    dw_check_report checked = {0};
    dw_error *error = NULL;
    int failed = dw_build(sources, 1, argv[2], &how, &built, &error)
              || dw_check(argv[2], NULL, &check, &checked, &error);
    if (failed)
        fprintf(stderr, "build: %s\n", dw_error_message(error));
    else
        printf("%llu files in an image of %llu bytes; %llu findings\n", (unsigned long long)built.entries,
               (unsigned long long)built.image_bytes, (unsigned long long)checked.findings);
    dw_error_free(error);
    return failed || checked.findings > 0;
}
