//! `dcctl rbac` from outside: what it prints is applied to a real API server as it is, and is enough for whoever it names.
//!
//! That it is no more than enough, one right after the other, is shown by `refused/forbidden.rs` and `refused/spared.rs`.

pub(crate) mod enough;
mod subjects;
mod typed;

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::bed::child::command;
use crate::bed::users::{self, User};
use crate::bed::{Bed, Dcctl, wait};

/// An account that a test makes for itself.
struct Account<'a> {
    bed: &'a Bed,
    /// What the API server calls it.
    name: String,
    kubeconfig: PathBuf,
}

impl<'a> Account<'a> {
    /// A new service account, without any right, logged in by a token of its own.
    fn service(bed: &'a Bed, namespace: &str, name: &str) -> Account<'a> {
        let object = json!({ "metadata": { "name": namespace } });
        bed.api().create("/api/v1/namespaces", &object).expect("the bed may do everything");
        let accounts = format!("/api/v1/namespaces/{namespace}/serviceaccounts");
        bed.api().create(&accounts, &json!({ "metadata": { "name": name } })).expect("the bed may do everything");
        let asked = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": { "expirationSeconds": 3600 } });
        let answer = bed.api().create(&format!("{accounts}/{name}/token"), &asked).expect("the bed may do everything");
        let token = answer["status"]["token"].as_str().expect("a token").to_owned();
        let kubeconfig = bed.file(&format!("{namespace}-{name}.kubeconfig"));
        let user = User { token, kubeconfig: kubeconfig.clone() };
        let authority = std::fs::read(&bed.described().certificates).expect("the bed has a certificate");
        let text = users::kubeconfig(name, &user, bed.described().port, &authority);
        std::fs::write(&kubeconfig, text).expect("the test's folder can be written");
        Account { bed, name: format!("system:serviceaccount:{namespace}:{name}"), kubeconfig }
    }

    /// A user of the bed who has no rights yet.
    fn nobody(bed: &'a Bed) -> Account<'a> {
        Account { bed, name: "nobody".to_owned(), kubeconfig: bed.kubeconfig("nobody").to_owned() }
    }

    /// This run in its name.
    fn runs(&self, dcctl: Dcctl) -> Dcctl {
        dcctl.with_kubeconfig(&self.kubeconfig)
    }

    /// Its requests, as the API server wrote them down.
    fn requests(&self) -> Vec<Value> {
        let own = |event: &Value| event["user"]["username"] == self.name.as_str();
        self.bed.audit().into_iter().filter(own).collect()
    }

    /// Those that were answered by a 403.
    fn forbidden(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let refused = |event: &&Value| event["responseStatus"]["code"] == 403;
        let said = |event: &Value| format!("{} {}", text(&event["verb"]), text(&event["requestURI"]));
        self.requests().iter().filter(refused).map(said).collect()
    }

    /// Waits until the API server knows that this account may claim locks: it learns of new rights by and by.
    fn wait_until_it_may_claim(&self) {
        let read = || self.runs(self.bed.dcctl(["lock", "status"])).run().code() == Some(0);
        wait::fact("the rights to be known", || read().then_some(()));
    }
}

/// What `dcctl rbac` prints with these options.
fn printed(bed: &Bed, options: &[&str]) -> String {
    bed.dcctl(["rbac"]).args(options).run().expect_code(0).stdout + "\n"
}

/// Applies it as a person does.
fn kubectl_apply(bed: &Bed, text: &str) {
    let file = bed.write("rights.yaml", text);
    let kubectl = command(&bed.described().programs.join("kubectl"))
        .args(["apply", "-f"])
        .arg(file)
        .env_clear()
        .env("HOME", bed.scratch())
        .env("KUBECONFIG", bed.kubeconfig("bed"))
        .stdin(Stdio::null())
        .output()
        .expect("the bed has kubectl");
    assert!(kubectl.status.success(), "{}", String::from_utf8_lossy(&kubectl.stderr));
}
