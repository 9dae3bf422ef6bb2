//! Programs that pretend to be a tool, for what a real one cannot be asked to be: too old, another product, mad.
//!
//! Each is a link to `fake-tool` under the tool's name, with its behaviour in a file beside it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::bed::tools::own;

/// Bytes that no reader of a tool's output may stumble over: no UTF-8, colours, NUL, the end of a CDATA section, the
/// mark of a workflow command, a carriage return.
pub(crate) const NASTY: &[u8] = b"\xff\xfe \x1b[31mred\x1b[0m \0 ]]> ##[error] ::error::\r <&\"'>\n";

/// Makes a program of this name in a folder. Its acts are `fake-tool`'s arguments, one each.
pub(crate) fn tool(folder: &Path, name: &str, acts: &[&str]) -> PathBuf {
    fs::create_dir_all(folder).expect("the test's folder can be written");
    let program = folder.join(name);
    let _ = fs::remove_file(&program);
    symlink(own("fake-tool"), &program).expect("the test's folder can be written");
    fs::write(folder.join(format!("{name}.acts")), acts.join("\n")).expect("the test's folder can be written");
    program
}

/// An OpenTofu of this version that knows nothing but its version.
pub(crate) fn tofu(folder: &Path, version: &str) -> PathBuf {
    versioned(folder, "tofu", "OpenTofu", version)
}

/// A Terraform of this version, under any name: what somebody gets who points `--tofu` at the wrong program.
pub(crate) fn terraform(folder: &Path, name: &str, version: &str) -> PathBuf {
    versioned(folder, name, "Terraform", version)
}

fn versioned(folder: &Path, name: &str, product: &str, version: &str) -> PathBuf {
    let json = format!(
        r#"print={{"terraform_version": "{version}", "platform": "linux_amd64", "provider_selections": {{}}}}"#
    );
    let text = format!("print={product} v{version}");
    let version_json = ["when=version -json", "{", &json, "exit=0", "}"];
    let version_text = ["when=version", "{", &text, "print=on linux_amd64", "exit=0", "}"];
    tool(folder, name, &[&version_json[..], &version_text, &["complain=it can do nothing else", "exit=1"]].concat())
}

/// A Helm of this version that knows nothing but its version, with and without `--template`.
pub(crate) fn helm(folder: &Path, version: &str) -> PathBuf {
    let short = format!("part=v{version}");
    let long = format!(r#"print=version.BuildInfo{{Version:"v{version}", GitCommit:"", GoVersion:"go1.26.8"}}"#);
    let with_template = ["when=version --template", "{", &short, "exit=0", "}"];
    let with_short = ["when=version --short", "{", &short, "exit=0", "}"];
    let plain = ["when=version", "{", &long, "exit=0", "}"];
    tool(
        folder,
        "helm",
        &[&with_template[..], &with_short, &plain, &["complain=it can do nothing else", "exit=1"]].concat(),
    )
}

/// The act of `fake-tool` that prints these bytes.
pub(crate) fn raw(bytes: &[u8]) -> String {
    let digits: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("raw={}", digits.concat())
}
