# Sourced by scripts/test-anywhere: mounts published images and volumes, kills mounts while programs sync, and then
# reads, fences, copies, exports and checks the results. Needs /dev/fuse, e2fsck and xfs_repair (from target/tools or
# the host), and qemu-img and qemu-io for NBD.

PATH=$PWD/target/tools/xfsprogs/bin:$PATH:/usr/sbin:/sbin
bucket=s3://bucket
mnt=$place/mnt
mkdir -p "$mnt"

# judge IMAGE: the format's checker must report nothing.
judge() {
    case $("$program" info "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["format"])') in
        ext4) e2fsck -fn "$1" >"$place/judge.log" 2>&1 ;;
        *) xfs_repair -n "$1" >"$place/judge.log" 2>&1 ;;
    esac || fail "$1 is damaged: $(tail -20 "$place/judge.log")"
    "$program" check "$1" >"$place/judge.log" 2>&1 || fail "our check of $1: $(tail -20 "$place/judge.log")"
}

# Files that a program writes and syncs before the mount is killed. Each contains its name many times.
cat >"$place/synced.py" <<'PYTHON'
import os, sys, threading
top, log, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
lock = threading.Lock()
out = open(log, "a")
def work(thread):
    os.makedirs(f"{top}/{thread}", exist_ok=True)
    number = first
    while True:
        name = f"{thread}/{number}"
        with open(f"{top}/{name}.new", "wb") as file:
            file.write(name.encode() * (number * 37 % 3000))
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{top}/{name}.new", f"{top}/{name}")
        folder = os.open(f"{top}/{thread}", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        with lock:
            out.write(name + "\n")
            out.flush()
        number += 1
def quiet(thread):
    try:
        work(thread)
    except OSError:
        pass  # The mount was killed.
for thread in range(6):
    threading.Thread(target=quiet, args=(thread,)).start()
PYTHON
cat >"$place/judge_synced.py" <<'PYTHON'
import sys
top, names = sys.argv[1], open(sys.argv[2]).read().split()
for name in names:
    with open(f"{top}/{name}", "rb") as file:
        number = int(name.split("/")[1])
        if file.read() != name.encode() * (number * 37 % 3000):
            sys.exit(f"{name} has other contents than those that were synced")
print(f"{len(names)} synced files are there")
PYTHON

# killed_while_syncing IMAGE LOG [OPTIONS…]: mounts, syncs files of this round during a command, and kills the mount.
round=0
meanwhile=(sleep 2)
killed_while_syncing() {
    local image=$1 log=$2
    shift 2
    "$program" mount --foreground "$@" "$image" "$mnt" 2>"$place/mount.err" &
    local mount=$!
    for _ in $(seq 200); do mountpoint -q "$mnt" && break; sleep 0.1; done
    mountpoint -q "$mnt" || fail "$image is not mounted: $(cat "$place/mount.err")"
    python3 "$place/synced.py" "$mnt" "$log" $((round * 100000)) &
    local writer=$!
    "${meanwhile[@]}"
    kill -KILL $mount
    wait $mount 2>/dev/null || true
    wait $writer || true
    fusermount3 -uz "$mnt" 2>/dev/null || umount -l "$mnt"
    round=$((round + 1))
}

# A published image with local changes: its mount is killed, and mounted again.
for fs in ext4 xfs; do
    name=doc
    [[ $fs == xfs ]] && name=xfs
    for _ in 1 2 3; do killed_while_syncing "$url/names/$name" "$place/synced.$fs" --overlay "$place/changes.$fs"; done
    "$program" mount --overlay "$place/changes.$fs" "$url/names/$name" "$mnt"
    python3 "$place/judge_synced.py" "$mnt" "$place/synced.$fs"
    "$program" unmount "$mnt"
    "$program" commit "$place/changes.$fs" "$place/committed.$fs"
    judge "$place/committed.$fs"
    echo "overlay over $name, mount killed three times: its files are there, and the commit is clean"
done

for fs in ext4 xfs; do
    volume=$bucket/volumes/$fs
    "$program" volume create "$volume" --fs $fs --size 40G
    for _ in 1 2 3; do killed_while_syncing "$volume" "$place/synced.volume.$fs"; done
    # The state after the crash, seen by a reader that does not change it.
    "$program" volume export "$volume" "$place/crashed.img"
    "$program" check "$place/crashed.img" >/dev/null || [[ $? == 1 ]] || fail "the crashed volume cannot be read"
    # Published in this state, its journal or log is replayed into an overlay.
    "$program" publish "$place/crashed.img" "$url" --name "crashed-$fs" >/dev/null
    "$program" mount --overlay "$place/replayed.$fs" "$url/names/crashed-$fs" "$mnt"
    python3 "$place/judge_synced.py" "$mnt" "$place/synced.volume.$fs"
    "$program" unmount "$mnt"
    "$program" commit "$place/replayed.$fs" "$place/committed.img"
    judge "$place/committed.img"
    rm -f "$place/committed.img" "$place/replayed.$fs"
    "$program" mount "$volume" "$mnt"
    python3 "$place/judge_synced.py" "$mnt" "$place/synced.volume.$fs"
    cp -r "$place/more" "$mnt/more"
    sync -f "$mnt"
    "$program" volume snapshot "$volume" before 2>"$place/err" && fail "a volume that is mounted was copied without its log"
    grep -q take-over "$place/err" || fail "no word of --take-over: $(cat "$place/err")"
    "$program" unmount "$mnt"
    "$program" volume snapshot "$volume" before
    "$program" volume clone "$volume@before" "$volume-clone"
    # Two writers: the second one continues, and the first one gets an error.
    mkdir -p "$place/second"
    "$program" mount --log "$place/first.log" "$volume" "$mnt"
    "$program" mount "$volume" "$place/second"
    if python3 -c "import os; f = os.open('$mnt/fenced', os.O_CREAT | os.O_WRONLY); os.write(f, b'x'); os.fsync(f)" 2>/dev/null; then
        fail "the first of two writers goes on"
    fi
    echo "of the second" >"$place/second/second"
    sync -f "$place/second"
    "$program" unmount "$mnt" || true
    grep -q "taken over by another machine" "$place/first.log" || fail "the first is not told why: $(cat "$place/first.log")"
    rm -r "$place/second/more"
    "$program" unmount "$place/second"
    "$program" volume export "$volume" "$place/export.img" --force
    judge "$place/export.img"
    "$program" cat "$place/export.img" /second | grep -q second || fail "what the second wrote is not in the export"
    "$program" ls "$place/export.img" / | grep -q fenced && fail "the first wrote after it was fenced"
    "$program" volume export "$volume@before" "$place/export.img" --force
    judge "$place/export.img"
    "$program" cat "$place/export.img" /more/random | cmp - "$place/more/random" || fail "the snapshot has other contents"
    "$program" mount "$volume-clone" "$mnt"
    cmp "$mnt/more/random" "$place/more/random" || fail "the clone has other contents"
    echo "of the clone" >"$mnt/clone"
    "$program" unmount "$mnt"
    "$program" volume export "$volume" "$place/export.img" --force
    "$program" ls "$place/export.img" / >"$place/said"
    grep -q clone "$place/said" && fail "the clone changes its origin"
    rm -f "$place/crashed.img" "$place/export.img"
    echo "volume with $fs, killed three times, fenced, copied: everything is there, and the exports are clean"
done

if ! command -v qemu-io >/dev/null; then
    echo "test-anywhere: SKIPPED NBD: no qemu-io and qemu-img, which qemu-utils has"
    return 0
fi
"$program" volume create "$bucket/volumes/disk" --size 1G
"$program" serve "$bucket/volumes/disk" --nbd "unix:$place/nbd" 2>"$place/serve.err" &
served=$!
pids+=("$served")
for _ in $(seq 100); do [[ -S $place/nbd ]] && break; sleep 0.1; done
nbd=nbd+unix:///?socket=$place/nbd
qemu-img info "$nbd" | grep -q "1 GiB" || fail "qemu-img sees another size"
qemu-io -f raw -c 'write -P 7 512M 3M' -c 'flush' -c 'read -P 7 512M 3M' -c 'write -z 513M 1M' -c 'read -P 0 513M 1M' \
    -c 'discard 514M 1M' "$nbd" >"$place/qemu-io.log" 2>&1 || fail "qemu-io: $(cat "$place/qemu-io.log")"
grep -q "Pattern verification failed" "$place/qemu-io.log" && fail "qemu-io reads other bytes: $(cat "$place/qemu-io.log")"
"$program" ls "$nbd" / | grep -q lost+found || fail "what is served cannot be read as a place"
kill "$served"
wait "$served" || fail "serve ended with $?: $(cat "$place/serve.err")"
"$program" volume export "$bucket/volumes/disk" "$place/disk.img"
qemu-io -f raw -r -c 'read -P 7 512M 1M' "$place/disk.img" >/dev/null || fail "the export has other bytes than qemu wrote"
echo "a volume over NBD: qemu wrote it and reads it"
