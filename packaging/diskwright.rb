# Homebrew formula. Not tried: no release exists yet, so url and sha256 must be set.
#
#   brew install --formula packaging/diskwright.rb
class Diskwright < Formula
  desc "Build, read, edit, mount, check and repair ext4 and XFS images without root"
  homepage "https://github.com/diskwright/diskwright"
  url "https://github.com/diskwright/diskwright/archive/refs/tags/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/diskwright/diskwright.git", branch: "main"

  depends_on "rust" => :build

  def install
    features = "anywhere"
    system "cargo", "install", *std_cargo_args(path: "crates/front/cli"), "--features", features, "--profile", "dist"
    system "cargo", "install", *std_cargo_args(path: "crates/dev/bench"), "--profile", "dist"
    system "cargo", "run", "--package", "diskwright-cli", "--example", "generate", "--", prefix
  end

  test do
    (testpath/"tree").mkpath
    (testpath/"tree/motd").write "welcome\n"
    system bin/"diskwright", "build", "tree", "root.img", "--size", "16M"
    assert_equal "welcome\n", shell_output("#{bin}/diskwright cat root.img /motd")
    system bin/"diskwright", "check", "root.img"
  end
end
