# The formula of Homebrew, for macOS and Linux.
#
#   brew tap-new local/fullbore && cp contrib/homebrew/fullbore.rb "$(brew --repository local/fullbore)/Formula/"
#   brew install --HEAD local/fullbore/fullbore
#
# Homebrew installs formulas of taps only, so the first line makes one. A release adds `url` and `sha256`.
class Fullbore < Formula
  desc "HTTP/2 and HTTP/1.1 downloads, uploads and a file server for long paths"
  homepage "https://github.com/fullbore/fullbore"
  license any_of: ["MIT", "Apache-2.0"]
  head "https://github.com/fullbore/fullbore.git", branch: "main"

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/cli")
    generate_completions_from_executable(bin/"fullbore", "completions")
    (buildpath/"man").mkpath
    system bin/"fullbore", "man", buildpath/"man"
    man1.install Dir[buildpath/"man/*.1"]
  end

  test do
    (testpath/"a.txt").write "hello"
    port = free_port
    server = fork { exec bin/"fullbore", "serve", testpath, "--port", port.to_s }
    sleep 2
    assert_equal "hello", shell_output("#{bin}/fullbore get http://127.0.0.1:#{port}/a.txt")
  ensure
    Process.kill("TERM", server)
    Process.wait(server)
  end
end
