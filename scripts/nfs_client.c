/* Measures an NFSv3 server for bench-nfs: nfs_client HOST NFS_PORT MOUNT_PORT EXPORT STEP...
 *
 * A step is NAME:COUNT:WINDOW. Up to WINDOW requests are in flight. Prints a line NAME, COUNT, seconds for each step.
 * Other steps enter a directory of the root: dir=NAME, or mkdir=NAME, which makes it first.
 * Exits with an error at the first unexpected reply. The procedures are called directly, without caches. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <nfsc/libnfs.h>
#include <nfsc/libnfs-raw.h>
#include <nfsc/libnfs-raw-mount.h>
#include <nfsc/libnfs-raw-nfs.h>

#define PIECE_BYTES (1 << 20)
#define LISTING_BYTES (64 << 10)
#define HANDLE_BYTES 64
#define CLIENTS_MAX 64

struct handle {
    char bytes[HANDLE_BYTES];
    uint32_t len;
};

struct client {
    struct rpc_context *rpc;
    struct handle root, dir, file;
    uint64_t total, started, finished, window;
    int (*send)(struct client *, uint64_t number);
    /* Status of a reply that is expected. */
    uint32_t status;
    /* Position in a listing. */
    uint64_t cookie, entries;
    cookieverf3 verifier;
    int is_ready;
};

static char data[PIECE_BYTES];

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("nfs_client: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static nfs_fh3 fh(struct handle *handle)
{
    nfs_fh3 fh = {{handle->len, handle->bytes}};
    return fh;
}

static void keep(struct handle *handle, uint32_t len, const char *bytes)
{
    if (len > HANDLE_BYTES)
        fail("a handle has %u bytes", len);
    memcpy(handle->bytes, bytes, len);
    handle->len = len;
}

/* Waits for events of all clients and handles them. */
static void turn(struct client *clients, int count)
{
    struct pollfd fds[CLIENTS_MAX];
    for (int at = 0; at < count; at++) {
        fds[at].fd = rpc_get_fd(clients[at].rpc);
        fds[at].events = rpc_which_events(clients[at].rpc);
        fds[at].revents = 0;
    }
    if (poll(fds, count, 30000) <= 0)
        fail("no reply for 30 seconds, or poll failed: %s", strerror(errno));
    for (int at = 0; at < count; at++) {
        if (fds[at].revents && rpc_service(clients[at].rpc, fds[at].revents) < 0)
            fail("%s", rpc_get_error(clients[at].rpc));
    }
}

static void check_rpc(struct rpc_context *rpc, int status)
{
    if (status != RPC_STATUS_SUCCESS)
        fail("a request failed: %s", rpc_get_error(rpc));
}

static void on_connected(struct rpc_context *rpc, int status, void *reply, void *private)
{
    (void)reply;
    check_rpc(rpc, status);
    ((struct client *)private)->is_ready = 1;
}

static void on_mounted(struct rpc_context *rpc, int status, void *reply, void *private)
{
    struct client *client = private;
    mountres3 *result = reply;
    check_rpc(rpc, status);
    if (result->fhs_status != MNT3_OK)
        fail("mount: status %d", result->fhs_status);
    fhandle3 *root = &result->mountres3_u.mountinfo.fhandle;
    keep(&client->root, root->fhandle3_len, root->fhandle3_val);
    client->is_ready = 1;
}

static void wait_ready(struct client *client)
{
    while (!client->is_ready)
        turn(client, 1);
    client->is_ready = 0;
}

static void open_port(struct client *client, const char *host, int port, int program)
{
    client->rpc = rpc_init_context();
    if (!client->rpc || rpc_connect_port_async(client->rpc, host, port, program, 3, on_connected, client))
        fail("cannot connect to port %d", port);
    wait_ready(client);
}

static void connect_client(struct client *client, char **arguments)
{
    open_port(client, arguments[1], atoi(arguments[3]), MOUNT_PROGRAM);
    if (rpc_mount3_mnt_async(client->rpc, on_mounted, arguments[4], client))
        fail("cannot mount");
    wait_ready(client);
    rpc_destroy_context(client->rpc);
    open_port(client, arguments[1], atoi(arguments[2]), NFS_PROGRAM);
    client->dir = client->root;
}

/* Keeps up to `window` requests of each client in flight until all have `total` replies. */
static void run(struct client *clients, int count)
{
    int unfinished;
    do {
        unfinished = 0;
        for (int at = 0; at < count; at++) {
            struct client *client = &clients[at];
            while (client->started < client->total && client->started - client->finished < client->window) {
                if (client->send(client, client->started))
                    fail("cannot send: %s", rpc_get_error(client->rpc));
                client->started++;
            }
            unfinished |= client->finished < client->total;
        }
        if (unfinished)
            turn(clients, count);
    } while (unfinished);
}

static void prepare(struct client *client, int (*send)(struct client *, uint64_t), uint64_t total, uint64_t window)
{
    client->send = send;
    client->total = total;
    client->window = window;
    client->started = client->finished = client->cookie = client->entries = 0;
    client->status = NFS3_OK;
    memset(client->verifier, 0, sizeof client->verifier);
}

/* The results of all procedures begin with their status. */
static void on_reply(struct rpc_context *rpc, int status, void *reply, void *private)
{
    struct client *client = private;
    check_rpc(rpc, status);
    uint32_t found = *(nfsstat3 *)reply;
    if (found != client->status)
        fail("request %llu: status %u", (unsigned long long)client->finished, found);
    client->finished++;
}

static int send_create(struct client *client, uint64_t number)
{
    char name[32];
    CREATE3args arguments = {0};
    snprintf(name, sizeof name, "file-%08llu", (unsigned long long)number);
    arguments.where.dir = fh(&client->dir);
    arguments.where.name = name;
    arguments.how.mode = GUARDED;
    arguments.how.createhow3_u.g_obj_attributes.mode.set_it = 1;
    arguments.how.createhow3_u.g_obj_attributes.mode.set_mode3_u.mode = 0644;
    return rpc_nfs3_create_async(client->rpc, on_reply, &arguments, client);
}

static int look_up(struct client *client, char *name, rpc_cb reply)
{
    LOOKUP3args arguments = {{fh(&client->dir), name}};
    return rpc_nfs3_lookup_async(client->rpc, reply, &arguments, client);
}

static int send_lookup(struct client *client, uint64_t number)
{
    char name[32];
    /* Not in the order of the names. The factor and any count below it have no common divisor. */
    snprintf(name, sizeof name, "file-%08llu", (unsigned long long)(number * 1000003 % client->total));
    return look_up(client, name, on_reply);
}

static int send_missing(struct client *client, uint64_t number)
{
    char name[32];
    client->status = NFS3ERR_NOENT;
    snprintf(name, sizeof name, "none-%08llu", (unsigned long long)number);
    return look_up(client, name, on_reply);
}

static void on_listing(struct rpc_context *rpc, int status, void *reply, void *private);

static int send_listing(struct client *client, uint64_t number)
{
    READDIRPLUS3args arguments = {.dir = fh(&client->dir), .cookie = client->cookie};
    (void)number;
    memcpy(arguments.cookieverf, client->verifier, sizeof client->verifier);
    arguments.dircount = arguments.maxcount = LISTING_BYTES;
    return rpc_nfs3_readdirplus_async(client->rpc, on_listing, &arguments, client);
}

static void on_listing(struct rpc_context *rpc, int status, void *reply, void *private)
{
    struct client *client = private;
    READDIRPLUS3res *result = reply;
    check_rpc(rpc, status);
    if (result->status != NFS3_OK)
        fail("listing: status %d", result->status);
    READDIRPLUS3resok *listing = &result->READDIRPLUS3res_u.resok;
    for (entryplus3 *entry = listing->reply.entries; entry; entry = entry->nextentry) {
        if (!entry->name_attributes.attributes_follow || !entry->name_handle.handle_follows)
            fail("%s has no attributes or no handle", entry->name);
        client->cookie = entry->cookie;
        client->entries++;
    }
    if (listing->reply.eof) {
        client->cookie = 0;
        client->finished++;
        memset(client->verifier, 0, sizeof client->verifier);
        return;
    }
    memcpy(client->verifier, listing->cookieverf, sizeof client->verifier);
    if (send_listing(client, 0))
        fail("cannot send");
}

static void on_entry(struct rpc_context *rpc, int status, void *reply, void *private)
{
    struct client *client = private;
    LOOKUP3res *result = reply;
    on_reply(rpc, status, reply, private);
    nfs_fh3 *found = &result->LOOKUP3res_u.resok.object;
    keep(&client->file, found->data.data_len, found->data.data_val);
}

static int send_commit(struct client *client, uint64_t number)
{
    COMMIT3args arguments = {.file = fh(&client->file)};
    (void)number;
    return rpc_nfs3_commit_async(client->rpc, on_reply, &arguments, client);
}

static void on_written(struct rpc_context *rpc, int status, void *reply, void *private)
{
    WRITE3res *result = reply;
    on_reply(rpc, status, reply, private);
    if (result->WRITE3res_u.resok.count != PIECE_BYTES)
        fail("wrote %u bytes only", result->WRITE3res_u.resok.count);
}

static void on_read(struct rpc_context *rpc, int status, void *reply, void *private)
{
    READ3res *result = reply;
    on_reply(rpc, status, reply, private);
    if (result->READ3res_u.resok.count != PIECE_BYTES)
        fail("read %u bytes only", result->READ3res_u.resok.count);
}

static int read_piece(struct client *client, uint64_t number, rpc_cb reply)
{
    READ3args arguments = {fh(&client->file), number * PIECE_BYTES, PIECE_BYTES};
    return rpc_nfs3_read_async(client->rpc, reply, &arguments, client);
}

static int send_write(struct client *client, uint64_t number)
{
    WRITE3args arguments = {.file = fh(&client->file), .offset = number * PIECE_BYTES, .stable = UNSTABLE};
    arguments.count = arguments.data.data_len = PIECE_BYTES;
    arguments.data.data_val = data;
    return rpc_nfs3_write_async(client->rpc, on_written, &arguments, client);
}

static int send_read(struct client *client, uint64_t number)
{
    return read_piece(client, number, on_read);
}

/* Even requests write a piece. Odd ones read an earlier piece, which may not be there yet. */
static int send_mixed(struct client *client, uint64_t number)
{
    return number % 2 ? read_piece(client, number / 4, on_reply) : send_write(client, number / 2);
}

static char *entry;

static int send_entry(struct client *client, uint64_t number)
{
    (void)number;
    return look_up(client, entry, on_entry);
}

static int send_mkdir(struct client *client, uint64_t number)
{
    MKDIR3args arguments = {.where = {fh(&client->root), entry}};
    (void)number;
    return rpc_nfs3_mkdir_async(client->rpc, on_reply, &arguments, client);
}

static void once(struct client *client, int (*send)(struct client *, uint64_t))
{
    prepare(client, send, 1, 1);
    run(client, 1);
}

/* Opens a file that send_create makes, below the directory. */
static void open_file(struct client *client, uint64_t number, int is_new)
{
    char name[32];
    if (is_new) {
        prepare(client, send_create, number + 1, 1);
        client->started = client->finished = number;
        run(client, 1);
    }
    snprintf(name, sizeof name, "file-%08llu", (unsigned long long)number);
    entry = name;
    once(client, send_entry);
}

/* Enters a directory below the root: `mkdir=NAME` makes it first. */
static void enter(struct client *client, char *name, int is_new)
{
    entry = name;
    if (is_new)
        once(client, send_mkdir);
    client->dir = client->root;
    once(client, send_entry);
    client->dir = client->file;
}

struct step {
    const char *name;
    int (*send)(struct client *, uint64_t);
    /* Works on the contents of the first file. */
    int has_contents;
};

static const struct step STEPS[] = {
    {"create", send_create, 0}, {"lookup", send_lookup, 0}, {"missing", send_missing, 0},
    {"list", send_listing, 0},  {"write", send_write, 1},   {"read", send_read, 1},
};

static void measure(struct client *client, const struct step *step, uint64_t count, uint64_t window)
{
    int is_write = step->send == send_write;
    if (step->has_contents)
        open_file(client, 0, is_write);
    double start = now();
    prepare(client, step->send, count, window);
    run(client, 1);
    uint64_t entries = client->entries;
    if (is_write)
        once(client, send_commit);
    printf("%s %llu %.6f\n", step->name, (unsigned long long)(entries ? entries : count), now() - start);
}

/* Opens many connections. Each writes and reads `count` pieces of a separate file, all at the same time. */
static void measure_many(char **arguments, struct handle dir, uint64_t count, uint64_t window)
{
    static struct client clients[CLIENTS_MAX];
    for (int at = 0; at < CLIENTS_MAX; at++) {
        connect_client(&clients[at], arguments);
        clients[at].dir = dir;
        open_file(&clients[at], at, 1);
        prepare(&clients[at], send_mixed, count, window);
    }
    double start = now();
    run(clients, CLIENTS_MAX);
    for (int at = 0; at < CLIENTS_MAX; at++)
        prepare(&clients[at], send_commit, 1, 1);
    run(clients, CLIENTS_MAX);
    printf("many %llu %.6f\n", (unsigned long long)(count * CLIENTS_MAX), now() - start);
}

static void do_step(struct client *client, char **arguments, char *text)
{
    char *name = strchr(text, '=');
    if (name) {
        enter(client, name + 1, !strncmp(text, "mkdir", 5));
        return;
    }
    char kind[16];
    unsigned long long count, window;
    if (sscanf(text, "%15[a-z]:%llu:%llu", kind, &count, &window) != 3)
        fail("not a step: %s", text);
    if (!strcmp(kind, "many")) {
        measure_many(arguments, client->dir, count, window);
        return;
    }
    for (size_t at = 0; at < sizeof STEPS / sizeof *STEPS; at++) {
        if (!strcmp(kind, STEPS[at].name)) {
            measure(client, &STEPS[at], count, window);
            return;
        }
    }
    fail("no step %s", kind);
}

int main(int argc, char **argv)
{
    struct client client = {0};
    if (argc < 6)
        fail("usage: nfs_client HOST NFS_PORT MOUNT_PORT EXPORT STEP...");
    for (int at = 0; at < PIECE_BYTES; at++)
        data[at] = (char)(at * 7 + at / 251);
    connect_client(&client, argv);
    for (int at = 5; at < argc; at++) {
        do_step(&client, argv, argv[at]);
        fflush(stdout);
    }
    return 0;
}
