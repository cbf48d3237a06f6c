# Sourced by scripts/test-anywhere after scripts/anywhere_mounts.sh. Tests a cache that is killed, damaged and full, wrong
# credentials and clocks, and a bucket that disappears and returns. Records a start, kills the server, runs test suites on
# the mount of a volume, and removes the bucket.

published=$url/names/doc
"$program" extract "$published" - >"$place/whole.tar"

# A damaged cache must never be trusted more than the object that it caches.
export DISKWRIGHT_CACHE=$place/cache
whole() { "$program" extract "$published" - | cmp - "$place/whole.tar" || fail "$1: the contents are others"; }
for time in 0.2 0.4 0.8; do
    timeout -s KILL $time "$program" extract "$published" - >/dev/null 2>&1 || true
done
whole "a cache that was killed while it was written"
counts >/dev/null
whole "a warm cache"
warm=$(counts)
(($(value "$warm" GET) <= 4)) || fail "a warm cache asks for $warm"
python3 - "$place/cache" <<'PYTHON'
import os, random, sys
random.seed(1)
for top, _, names in os.walk(sys.argv[1]):
    for name in names:
        with open(os.path.join(top, name), "r+b") as file:
            size = os.fstat(file.fileno()).st_size
            for _ in range(200 if name == "data" else 5 if name == "sums" else 0):
                file.seek(random.randrange(size))
                file.write(b"?")
PYTHON
whole "a cache that was damaged by hand"
unset DISKWRIGHT_CACHE
if unshare -rm true 2>/dev/null; then
    mkdir -p "$place/small"
    # shellcheck disable=SC2016
    unshare -rm bash -c 'mount -t tmpfs -o size=4m none "$1" && exec "$2" --cache="$1" extract "$3" -' - \
        "$place/small" "$program" "$published" | cmp - "$place/whole.tar" || fail "a cache on a full disk: the contents are others"
else
    echo "test-anywhere: SKIPPED a cache on a full disk: no namespaces of users and mounts here"
fi
echo "cache: killed, damaged and full, and the contents are right"

# Wrong credentials are reported with the address and without the secret.
secret=nobody-may-see-this-secret
lines=("info $published" "publish $place/doc.img $url --name doc" "volume create s3://bucket/volumes/none --size 1G"
    "mount --foreground $published $mnt" "gc $url")
if [[ $kind == moto ]]; then
    echo "test-anywhere: SKIPPED wrong credentials: moto accepts all"
    lines=()
fi
for line in "${lines[@]}"; do
    # shellcheck disable=SC2086
    if AWS_SECRET_ACCESS_KEY=$secret timeout 60 "$program" $line >"$place/said" 2>&1; then
        fail "with wrong credentials this works: $line"
    fi
    grep -q bucket "$place/said" || fail "$line: no word of the place: $(cat "$place/said")"
    if grep -q -e "$secret" -e "$AWS_SECRET_ACCESS_KEY" "$place/said"; then fail "$line: a message has the secret"; fi
done
((${#lines[@]} == 0)) || echo "wrong credentials: told, and not shown"

# A clock that is wrong by a year. A store that checks the time rejects the signatures, which is reported with the
# address. Other stores must return data written with one clock to a client with the other.
if [[ $(id -u) == 0 ]] && ! command -v faketime >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q faketime </dev/null >/dev/null 2>&1 || true
fi
if command -v faketime >/dev/null; then
    at_time() { FAKETIME_DONT_FAKE_MONOTONIC=1 timeout 120 faketime -f "$@"; }
    clocks=()
    for clock in -400d +400d; do
        volume=$bucket/volumes/clock$clock
        if at_time "$clock" "$program" info "$published" >"$place/said" 2>&1; then
            clocks+=("$clock is taken")
            at_time "$clock" "$program" volume create "$volume" --fs xfs --size 1G >/dev/null
            at_time "$clock" "$program" cp "$place/more/random" "$volume:/wrong" >/dev/null
        else
            clocks+=("$clock is refused")
            grep -q bucket "$place/said" || fail "a clock at $clock: no word of the place: $(cat "$place/said")"
            if at_time "$clock" "$program" volume create "$volume" --fs xfs --size 1G >/dev/null 2>&1; then
                fail "a volume is made where the clock was refused"
            fi
            "$program" volume create "$volume" --fs xfs --size 1G >/dev/null
            "$program" cp "$place/more/random" "$volume:/wrong" >/dev/null
        fi
        "$program" cp "$place/more/numbers" "$volume:/right" >/dev/null
        "$program" volume export "$volume" "$place/clock.img" --force
        judge "$place/clock.img"
        for name in wrong/random right/numbers; do
            "$program" cat "$place/clock.img" "/${name%/*}" | cmp - "$place/more/${name#*/}" || fail "a clock at $clock: $name is another"
        done
        rm "$place/clock.img"
    done
    echo "a clock that is wrong: $(printf '%s; ' "${clocks[@]}")nothing is lost"
else
    echo "test-anywhere: SKIPPED a clock that is wrong: faketime is not installed"
fi

# A bucket that disappears and returns: requests fail with EIO until it returns, and the mount remains.
second=$(free_port)
python3 scripts/delay_proxy.py "$second" "$server" 0.001 &
second_proxy=$!
wait_for "$second"
AWS_ENDPOINT=http://127.0.0.1:$second "$program" mount -o ro --no-read-ahead "$published" "$mnt"
ls "$mnt" >/dev/null
kill "$second_proxy"
wait "$second_proxy" 2>/dev/null || true
if cat "$mnt/more/random" >/dev/null 2>"$place/said"; then fail "a file is read of a bucket that is gone"; fi
grep -q "Input/output error" "$place/said" || fail "without the bucket a file gives: $(cat "$place/said")"
python3 scripts/delay_proxy.py "$second" "$server" 0.001 &
pids+=($!)
wait_for "$second"
cmp "$mnt/more/random" "$place/more/random" || fail "the mount did not come back with its bucket"
"$program" unmount "$mnt"
echo "a bucket that went and came back: EIO, then the contents"

# A recorded start, published with its order, waits less often the next time.
"$program" mount -o ro --record "$place/start" "$published" "$mnt"
start_of() { (cd "$mnt" && find . -type f | awk 'NR % 50 == 0' | xargs -d '\n' cat | wc -c); }
bytes=$(start_of)
"$program" unmount "$mnt"
[[ $(wc -l <"$place/start") -gt 10 ]] || fail "nothing was recorded"
"$program" publish "$place/new.img" "$url" --name ordered --order "$place/start" --json >/dev/null
for name in other ordered; do
    counts >/dev/null
    "$program" mount -o ro "$url/names/$name" "$mnt"
    begun=${EPOCHREALTIME/,/.}
    [[ $(start_of) == "$bytes" ]] || fail "$name: the start reads something else"
    awk -v name="$name" -v start="$begun" -v end="${EPOCHREALTIME/,/.}" \
        'BEGIN { printf "start, published as %s: %.2f s\n", name, end - start }'
    "$program" unmount "$mnt"
    counts
    echo
done

# The server is killed while programs sync, and starts again. Synced files survive this and a kill of the mount.
restart_server() {
    sleep 2
    kill -KILL "${pids[0]}"
    wait "${pids[0]}" 2>/dev/null || true
    sleep 1
    start_server
    sleep 3
}
if [[ $kind == moto ]]; then
    echo "test-anywhere: SKIPPED a server that is killed: moto keeps its objects in memory only"
else
    meanwhile=(restart_server)
    for fs in ext4 xfs; do
        volume=$bucket/volumes/restarted-$fs
        "$program" volume create "$volume" --fs $fs --size 1G
        for _ in 1 2; do killed_while_syncing "$volume" "$place/synced.restarted.$fs"; done
        "$program" mount "$volume" "$mnt"
        python3 "$place/judge_synced.py" "$mnt" "$place/synced.restarted.$fs"
        "$program" unmount "$mnt"
        "$program" volume export "$volume" "$place/restarted.img" --force
        judge "$place/restarted.img"
        rm "$place/restarted.img"
        echo "volume with $fs, server and mount killed twice: its files are there, and the export is clean"
    done
fi

# Test suites on the mount of a volume, whose results must not be worse than on a local image of the same format.
scripts/install-suites
cat >"$place/fsx.toml" <<'TOML'
flen = 3145728
[opsize]
max = 196608
min = 1
[weights]
close_open = 2
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 12
truncate = 4
fsync = 1
fdatasync = 1
posix_fallocate = 3
punch_hole = 4
sendfile = 3
posix_fadvise = 2
copy_file_range = 4
TOML
cat >"$place/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
# failures LOG: prints the failed tests.
failures() { awk '$2 == "FAILED" { print $1 }' "$1" | sort; }
# suites IMAGE LOG: runs both suites on a mount, without the added delay, which would dominate the time.
suites() {
    direct "$program" mount -o "$options" "$1" "$mnt"
    mkdir -p "$place/artifacts"
    target/tools/bin/fsx -q -f "$place/fsx.toml" -P "$place/artifacts" -N "${DISKWRIGHT_ANYWHERE_FSX:-2000}" -S 1 "$mnt/fsx" \
        >"$place/fsx.log" 2>&1 || fail "fsx on $1: $(tail -20 "$place/fsx.log")"
    if ((is_root)); then
        target/tools/bin/pjdfstest -c "$place/pjdfstest.toml" -p "$mnt" >"$2" 2>&1 || true
        grep -q "Summary: " "$2" || fail "pjdfstest on $1: $(tail -20 "$2")"
    fi
    "$program" unmount "$mnt"
}
is_root=$(($(id -u) == 0))
options=rw
if ((is_root)); then
    chmod 755 "$place"
    options=allow_other,suid,dev
else
    echo "test-anywhere: SKIPPED pjdfstest on volumes: it needs root"
fi
for fs in ext4 xfs; do
    "$program" volume create "$bucket/volumes/suites-$fs" --fs $fs --size 2G
    suites "$bucket/volumes/suites-$fs" "$place/pjdfstest.volume"
    "$program" volume export "$bucket/volumes/suites-$fs" "$place/suites.img" --force
    judge "$place/suites.img"
    if ((is_root)); then
        rm -f "$place/local.img"
        "$program" build "$place/more" "$place/local.img" --fs $fs --size 2G >/dev/null
        suites "$place/local.img" "$place/pjdfstest.local"
        failures "$place/pjdfstest.volume" >"$place/failed.volume"
        failures "$place/pjdfstest.local" >"$place/failed.local"
        worse=$(comm -23 "$place/failed.volume" "$place/failed.local")
        [[ -z $worse ]] || fail "pjdfstest on a volume with $fs: $worse"
        echo "pjdfstest on a volume with $fs: $(grep "Summary: " "$place/pjdfstest.volume"); locally: $(grep "Summary: " "$place/pjdfstest.local")"
    fi
    echo "fsx on a volume with $fs: ok"
done

# The bucket is removed while programs sync. They get an error, nothing hangs, and nothing is reported as durable later.
if [[ $kind == light ]]; then
    echo "test-anywhere: SKIPPED a bucket that is removed: s3s-fs creates it again with the next put"
    return 0
fi
remove_bucket() {
    if [[ $kind == moto ]]; then as_moto_client moto-api/reset -X POST; else mv "$place/store/bucket" "$place/removed"; fi
}
mounts=() writers=()
for fs in ext4 xfs; do "$program" volume create "$bucket/volumes/removed-$fs" --fs $fs --size 1G; done
for fs in ext4 xfs; do
    mkdir -p "$place/mnt.$fs"
    "$program" mount --foreground "$bucket/volumes/removed-$fs" "$place/mnt.$fs" 2>"$place/removed.$fs.err" &
    mounts+=($!)
    for _ in $(seq 200); do mountpoint -q "$place/mnt.$fs" && break; sleep 0.1; done
    python3 "$place/synced.py" "$place/mnt.$fs" "$place/synced.removed.$fs" 0 &
    writers+=($!)
done
sleep 2
remove_bucket >/dev/null
sleep 1
acknowledged=$(cat "$place"/synced.removed.*)
for writer in "${writers[@]}"; do
    timeout 120 tail --pid="$writer" -f /dev/null || fail "programs hang without the bucket"
done
[[ $(cat "$place"/synced.removed.*) == "$acknowledged" ]] || fail "a file was reported as synced after the bucket was removed"
for fs in ext4 xfs; do
    timeout 120 "$program" unmount "$place/mnt.$fs" 2>"$place/said" || true
done
for mount in "${mounts[@]}"; do
    timeout 120 tail --pid="$mount" -f /dev/null || fail "a mount hangs without the bucket"
    wait "$mount" && fail "a mount that lost its bucket ends without an error"
done
for fs in ext4 xfs; do
    grep -q "bucket" "$place/removed.$fs.err" || fail "no word of the bucket: $(cat "$place/removed.$fs.err")"
done
if timeout 60 "$program" info "$published" >/dev/null 2>"$place/said"; then fail "an image is read without the bucket"; fi
echo "a bucket that is removed: $(wc -w <<<"$acknowledged") synced files before, errors after"
