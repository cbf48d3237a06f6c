# Makes the images in a guest. See README.md.

T=/share/t
run() { p=$1; shift; $T/ld-linux-x86-64.so.2 --library-path $T $T/$p "$@"; }
lvm() { run lvm "$@" 2>&1 | grep -v leaked || true; }
for m in loop dm-mod dm-crypt dm-mirror dm-raid dm-thin-pool raid0 raid1 raid456 aes cbc essiv xts; do modprobe $m 2>/dev/null || echo no $m; done
mkdir -p /w /run/lvm /etc/lvm /run/lock /run/cryptsetup; mount -t tmpfs tmpfs /w; cd /w
sum() { echo "SUM $1 $(sha256sum < $2 | cut -d' ' -f1) $(blockdev --getsize64 $2)"; }
fill() { # device name
 mkfs.ext4 -q -b ${B:-1024} -O ^has_journal -N 32 -U 01234567-89ab-cdef-0123-456789abcdef -E hash_seed=01234567-89ab-cdef-0123-456789abcdef $1
 mkdir -p /m; mount -t ext4 $1 /m; mkdir /m/etc; echo "Welcome to $2." > /m/etc/motd
 i=0; while [ $i -lt 200 ]; do echo "line $i of $2"; i=$((i+1)); done > /m/numbers; [ -z "$XS" ] || head -c 300000 /dev/zero | tr '\0' 'x' > /m/xs
 umount /m; sync; }
new() { truncate -s $2 $1; L=$(losetup -f); losetup $L $1; eval "$1=$L"; }
export DM_DISABLE_UDEV=1
# LVM
XS=1
new pv1 12M; new pv2 12M; new pv3 12M
cat > /etc/lvm/lvm.conf <<'EOF'
devices { use_devicesfile=0 }
activation { udev_sync=0 udev_rules=0 }
backup { backup=0 archive=0 }
global { use_lvmpolld=0 use_lvmlockd=0 }
EOF
lvm pvcreate -q -M2 $pv1 $pv2 $pv3
lvm vgcreate -s 256k vg $pv1 $pv2 $pv3
lvm lvcreate -y -Wn -Zn -l 8 -n lin vg $pv1
lvm lvcreate -y -Wn -Zn -l 12 -i 3 -I 64k -n str vg
lvm lvcreate -y -Wn -Zn -l 4 -n gap vg $pv1
lvm lvextend -l 16 vg/lin $pv1
lvm lvcreate -y -Wn -Zn -l 6 -n lega vg $pv1
lvm lvcreate -y -Wn -Zn -l 6 -n legb vg $pv2
lvm lvcreate -y --type thin-pool -L 1M -n pool vg $pv3
lvm lvcreate -y -Wn -V 4M -T vg/pool -n thin
for v in lin str lega thin; do fill /dev/mapper/vg-$v $v; done
sleep 1
cat /dev/mapper/vg-lega > /dev/mapper/vg-legb; sync
for v in lin str lega legb gap; do sum lvm/$v /dev/mapper/vg-$v; done
lvm lvs -a -o+devices $C
lvm vgchange -an vg
for p in pv1 pv2 pv3; do eval losetup -d \$$p; cp $p /share/out/lvm-$p; done
# md
arr() { name=$1; shift; n=$1; shift; devs=; i=0; while [ $i -lt $n ]; do new ${name}_$i 4M; eval d=\$${name}_$i; devs="$devs $d"; i=$((i+1)); done
 run mdadm --create /dev/md7 --run --force --assume-clean --homehost=any --name=$name -n $n "$@" $devs 2>&1 | tail -1
 fill /dev/md7 $name; sum md/$name /dev/md7; run mdadm --stop /dev/md7 2>&1 | tail -1
 i=0; while [ $i -lt $n ]; do eval losetup -d \$${name}_$i; cp ${name}_$i /share/out/md-${name}-$i; i=$((i+1)); done; }
arr zero 2 -l0 -c 64 -e 1.2
arr old 2 -l1 -e 0.90 --bitmap=none
arr one 2 -l1 -e 1.1 --bitmap=none
arr end 2 -l1 -e 1.0 --bitmap=none
arr five 3 -l5 -c 64 -e 1.2 --bitmap=none
arr fivela 4 -l5 -c 16 -e 1.2 --layout=la --bitmap=none
arr fivera 4 -l5 -c 16 -e 1.0 --layout=ra --bitmap=none
arr fivers 4 -l5 -c 16 -e 0.90 --layout=rs --bitmap=none
arr four 3 -l4 -c 16 -e 1.2 --bitmap=none
arr six 4 -l6 -c 64 -e 1.2 --bitmap=none
arr sixla 5 -l6 -c 16 -e 1.2 --layout=la --bitmap=none
arr sixra 5 -l6 -c 16 -e 1.2 --layout=ra --bitmap=none
XS=
# LUKS
lk() { name=$1; shift; new lk_$name 3M; eval d=\$lk_$name; printf 'correct horse' | run cryptsetup luksFormat -q "$@" $d -; printf 'correct horse' | run cryptsetup open --key-file - $d c_$name; fill /dev/mapper/c_$name $name; sum luks/$name /dev/mapper/c_$name; run cryptsetup close c_$name; losetup -d $d; cp lk_$name /share/out/luks-$name; }
S="--luks2-metadata-size 16k --luks2-keyslots-size 512k"
lk one --type luks1 --pbkdf-force-iterations 1000 -c aes-xts-plain64 -s 256
lk cbc --type luks1 --pbkdf-force-iterations 1000 -c aes-cbc-essiv:sha256 -s 256 -h sha1
lk two --type luks2 --pbkdf argon2id --pbkdf-force-iterations 4 --pbkdf-memory 64 --pbkdf-parallel 2 -s 512 $S
B=4096 lk sectors --type luks2 --sector-size 4096 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -s 256 $S
# nested: partition 1 -> LUKS2 -> LVM -> ext4
new nest 12M
printf '2048,,83\n' | sfdisk -q nest 2>/dev/null || echo "no sfdisk"
losetup -d $nest; O=1048576; L=$(losetup -f); losetup -o $O $L nest; 
printf 'correct horse' | run cryptsetup luksFormat -q --type luks2 --pbkdf pbkdf2 --pbkdf-force-iterations 1000 -s 256 $S $L -
printf 'correct horse' | run cryptsetup open --key-file - $L c_nest
lvm pvcreate -q /dev/mapper/c_nest; lvm vgcreate -s 256k inner /dev/mapper/c_nest
lvm lvcreate -y -Wn -Zn -l 12 -n root inner; fill /dev/mapper/inner-root nested; sum nested /dev/mapper/inner-root
lvm vgchange -an inner; run cryptsetup close c_nest; losetup -d $L; cp nest /share/out/nested
