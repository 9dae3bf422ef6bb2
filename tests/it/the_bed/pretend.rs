//! What pretends to be a tool.

use std::path::Path;

use crate::bed::child::command;
use crate::bed::pretend;

fn says(program: &Path, words: &[&str]) -> (Vec<u8>, Option<i32>) {
    let output = command(program).args(words).output().expect("it starts");
    (output.stdout, output.status.code())
}

#[test]
fn a_tool_that_is_too_old_says_so_as_the_real_one_would() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let tofu = pretend::tofu(folder.path(), "1.5.0");
    let (json, _) = says(&tofu, &["version", "-json"]);
    let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(json["terraform_version"], "1.5.0");
    assert_eq!(says(&tofu, &["version"]), (b"OpenTofu v1.5.0\non linux_amd64\n".to_vec(), Some(0)));
    assert_eq!(says(&tofu, &["apply"]), (Vec::new(), Some(1)));

    let terraform = pretend::terraform(folder.path(), "terraform", "1.9.8");
    assert_eq!(says(&terraform, &["version"]).0, b"Terraform v1.9.8\non linux_amd64\n");

    let helm = pretend::helm(folder.path(), "3.2.0");
    assert_eq!(says(&helm, &["version", "--template", "{{.Version}}"]), (b"v3.2.0".to_vec(), Some(0)));
}

#[test]
fn a_mad_tool_prints_any_bytes() {
    let folder = tempfile::tempdir().expect("the temporary folder can be written");
    let mad = pretend::tool(folder.path(), "helm", &[&pretend::raw(pretend::NASTY), "exit=3"]);
    assert_eq!(says(&mad, &["install"]), (pretend::NASTY.to_vec(), Some(3)));
}
