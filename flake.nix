# For Nix: `nix run github:fullbore/fullbore -- get -O URL`, `nix profile install github:fullbore/fullbore`.
{
  description = "HTTP/2 and HTTP/1.1 downloads, uploads and a file server for long paths";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
        "aarch64-darwin"
        "x86_64-darwin"
      ];
      each = function: nixpkgs.lib.genAttrs systems (system: function nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: rec {
        default = fullbore;
        fullbore = pkgs.rustPlatform.buildRustPackage {
          pname = "fullbore";
          version = "0.1.0";
          src = self;
          cargoLock.lockFile = ./Cargo.lock;
          buildAndTestSubdir = "crates/cli";
          # The tests need peers that the sandbox has not. The program tests itself below.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = pkgs.lib.optionalString (pkgs.stdenv.buildPlatform.canExecute pkgs.stdenv.hostPlatform) ''
            $out/bin/fullbore man man
            installManPage man/*.1
            installShellCompletion --cmd fullbore \
              --bash <($out/bin/fullbore completions bash) \
              --zsh <($out/bin/fullbore completions zsh) \
              --fish <($out/bin/fullbore completions fish)
          '';
          doInstallCheck = true;
          installCheckPhase = "$out/bin/fullbore --version";
          meta = {
            description = "HTTP/2 and HTTP/1.1 downloads, uploads and a file server for long paths";
            homepage = "https://github.com/fullbore/fullbore";
            license = with pkgs.lib.licenses; [
              mit
              asl20
            ];
            mainProgram = "fullbore";
          };
        };
      });
    };
}
