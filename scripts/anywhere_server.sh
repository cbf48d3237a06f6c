# Sourced at the root of the project: starts a bucket on the loopback, served by s3s-fs (or by versitygw, if
# DISKWRIGHT_ANYWHERE_SERVER is production) behind a proxy that adds 20 ms to each request and counts requests. Sets
# `place` (a directory that is removed at the end), `url` and `proxy`, and the environment of clients. `counts` prints
# the counts since its last call.

place=$(mktemp -d)
pids=()
clean_up() {
    # Files below a mount must not be removed with the directory.
    awk -v top="$place/" 'index($2, top) == 1 { print $2 }' /proc/self/mounts | while read -r point; do
        fusermount3 -uz "$point" 2>/dev/null || umount -l "$point"
    done
    ((${#pids[@]})) && kill "${pids[@]}" 2>/dev/null
    rm -rf --one-file-system "$place"
}
trap clean_up EXIT
fail() { echo "${0##*/}: $*" >&2; exit 1; }

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# wait_for PORT: waits until a server answers there.
wait_for() {
    for _ in $(seq 100); do
        if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then return; fi
        sleep 0.1
    done
    fail "nothing answers on port $1"
}
server=$(free_port)
proxy=$(free_port)
mkdir -p "$place/store/bucket"
export AWS_ACCESS_KEY_ID=of-the-test AWS_SECRET_ACCESS_KEY=of-the-test-too AWS_REGION=us-east-1
export AWS_ENDPOINT=http://127.0.0.1:$proxy AWS_ALLOW_HTTP=true
servers=target/tools/servers/bin
if [[ ${DISKWRIGHT_ANYWHERE_SERVER:-light} == production ]]; then
    $servers/versitygw --access "$AWS_ACCESS_KEY_ID" --secret "$AWS_SECRET_ACCESS_KEY" --region "$AWS_REGION" \
        --port "127.0.0.1:$server" posix "$place/store" >"$place/server.log" 2>&1 &
else
    $servers/s3s-fs --host 127.0.0.1 --port "$server" --access-key "$AWS_ACCESS_KEY_ID" \
        --secret-key "$AWS_SECRET_ACCESS_KEY" "$place/store" >"$place/server.log" 2>&1 &
fi
pids+=($!)
python3 scripts/delay_proxy.py "$proxy" "$server" 0.02 >"$place/proxy.log" 2>&1 &
pids+=($!)
wait_for "$server"
wait_for "$proxy"

counts() { curl -fsS "http://127.0.0.1:$proxy/__counts"; }
# direct COMMAND…: runs it without the proxy, for steps that are not measured.
direct() { AWS_ENDPOINT=http://127.0.0.1:$server "$@"; }
# value JSON KEY
value() { python3 -c 'import json, sys; print(json.loads(sys.argv[1]).get(sys.argv[2], 0))' "$1" "$2"; }
url=s3://bucket/images/fleet

