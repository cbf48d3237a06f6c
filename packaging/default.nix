# Nix expression. Not tried.
#
#   nix-build packaging/default.nix
{ pkgs ? import <nixpkgs> { } }:

let
  manifest = (pkgs.lib.importTOML ../Cargo.toml).workspace.package;
in
pkgs.rustPlatform.buildRustPackage {
  pname = "diskwright";
  inherit (manifest) version;

  src = pkgs.lib.cleanSource ./..;
  cargoLock.lockFile = ../Cargo.lock;

  buildType = "dist";
  cargoBuildFlags = [ "--package" "diskwright-cli" ];
  buildFeatures = [ "diskwright-cli/anywhere" ];

  # The tests need e2fsprogs, xfsprogs, loop devices and FUSE.
  doCheck = false;

  # Man pages and completions, and the workloads: programs with other features.
  postInstall = ''
    cargo run --offline --package diskwright-cli --example generate -- $out
    cargo build --offline --profile dist --package diskwright-bench
    install -m 755 target/dist/diskwright-bench $out/bin/
  '';

  meta = {
    description = "Builds, reads, edits, mounts, checks and repairs ext4 and XFS images, without root";
    homepage = manifest.repository;
    license = with pkgs.lib.licenses; [ mit asl20 ];
    mainProgram = "diskwright";
    platforms = pkgs.lib.platforms.unix;
  };
}
