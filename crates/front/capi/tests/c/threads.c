/* Threads that share an image, a file, and an image that is closed during their calls. */
#include "test.h"

#define SIZE ((uint64_t)64 << 20)
#define THREADS 4
#define ROUNDS 60

struct job {
    dw_image *image;
    dw_file *file;
    int number;
};

static int is_expected(int code)
{
    return code == DW_OK || code == DW_CLOSED;
}

static void *work(void *context)
{
    struct job *job = context;
    char path[64], other[64];
    for (int i = 0; i < ROUNDS; i++) {
        uint8_t bytes[512], back[512];
        size_t count = 0;
        uint64_t at = (uint64_t)(job->number * ROUNDS + i) * sizeof bytes;
        snprintf(path, sizeof path, "/t%d-%d", job->number, i);
        snprintf(other, sizeof other, "/r%d-%d", job->number, i);
        memset(bytes, job->number + 1, sizeof bytes);
        CHECK(is_expected(dw_write_file(job->image, path, bytes, sizeof bytes, NULL)));
        CHECK(is_expected(dw_pwrite(job->file, bytes, sizeof bytes, at, NULL)));
        int code = dw_pread(job->file, back, sizeof back, at, &count, NULL);
        CHECK(is_expected(code));
        CHECK(code || (count == sizeof back && !memcmp(bytes, back, sizeof back)));
        CHECK(is_expected(dw_rename(job->image, path, other, 0, NULL)));
        dw_dir *dir = NULL;
        const dw_entry *entry = NULL;
        if (!(code = dw_dir_open(job->image, "/", &dir, NULL)))
            while (!(code = dw_dir_next(dir, &entry, NULL)) && entry)
                ;
        CHECK(is_expected(code));
        dw_dir_free(dir);
        if (i % 2)
            CHECK(is_expected(dw_unlink(job->image, other, NULL)));
        if (i % 16 == 0)
            CHECK(is_expected(dw_sync(job->image, NULL)));
    }
    return NULL;
}

int main(void)
{
    for (int closes = 0; closes < 2; closes++) {
        struct memory *memory = memory_new(SIZE);
        dw_image *image = memory_image(memory, closes ? DW_XFS : DW_EXT4);
        dw_file *file;
        pthread_t threads[THREADS];
        struct job jobs[THREADS];
        OK(dw_file_open(image, "/shared", DW_READ | DW_WRITE | DW_CREATE, 0644, &file, &error));
        for (int i = 0; i < THREADS; i++) {
            jobs[i] = (struct job){.image = image, .file = file, .number = i};
            CHECK(!pthread_create(&threads[i], NULL, work, &jobs[i]));
        }
        if (closes)
            OK(dw_image_close(image, &error));
        for (int i = 0; i < THREADS; i++)
            CHECK(!pthread_join(threads[i], NULL));
        if (!closes) {
            dw_metadata metadata;
            OK(dw_file_stat(file, &metadata, &error));
            CHECK(metadata.size == THREADS * ROUNDS * 512);
            OK(dw_image_close(image, &error));
        }
        dw_file_free(file);
        dw_image_free(image);
        CHECK(memory->releases == 1);
        memory_check(memory);
        memory_free(memory);
    }
    puts("threads: ok");
    return 0;
}
