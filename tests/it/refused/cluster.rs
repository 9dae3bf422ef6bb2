//! Clusters that cannot be used: exit code 4, naming the thing and the fix.

use std::fs;

use crate::bed::impostor::{Certificate, Impostor};
use crate::bed::{Bed, Dcctl, Fault, Proxy, Rule};
use crate::refused::{Told, install, small_bundle, told};

/// Both verbs against this kubeconfig: the look at the surroundings is a step of one, and comes before the steps of
/// the other.
#[track_caller]
fn both(bed: &Bed, change: impl Fn(Dcctl) -> Dcctl, code: &str, says: &[&str]) {
    let bundle = small_bundle(bed);
    for verb in [&["install"][..], &["bootstrap", "demo"]] {
        let said = told(bed, || change(bed.dcctl(verb).arg("--bundle").arg(&bundle)), 4, code).says(says);
        assert_never_changed(&said);
    }
}

fn assert_never_changed(said: &Told) {
    let verdict = &said.events.last().expect("there is a verdict")["data"];
    assert_eq!((&verdict["outcome"], &verdict["lock"]), (&"refused".into(), &"never_taken".into()), "{verdict}");
    assert_eq!(said.report.only_bad().result, "error", "{}", said.report.text);
}

#[test]
fn a_cluster_that_nobody_listens_for_is_unreachable() {
    let bed = Bed::take();
    let says = ["https://127.0.0.1:1", "could not be reached", "Connection refused", "Check the address"];
    both(&bed, |run| run.args(["--kube-context", "nowhere"]), "surroundings.cluster_unreachable", &says);
}

#[test]
fn a_server_of_another_kind_is_named_as_one() {
    let bed = Bed::take();
    let tls = Impostor::with(&bed, Certificate::Good);
    let says = [&tls.address(), "does not speak like a Kubernetes API server", "proxy"];
    both(&bed, |run| run.with_kubeconfig(&tls.kubeconfig()), "surroundings.cluster_unreachable", &says);
    let plain = Impostor::without_tls(&bed);
    let kubeconfig = plain.kubeconfig();
    let text = fs::read_to_string(&kubeconfig)
        .expect("it was written")
        .replace(&plain.address(), &plain.address().replace("https", "http"));
    let without_tls = bed.write("plain.kubeconfig", &text);
    let says = ["http://127.0.0.1:", "does not speak like a Kubernetes API server"];
    both(&bed, |run| run.with_kubeconfig(&without_tls), "surroundings.cluster_unreachable", &says);
}

#[test]
fn a_server_that_answers_tls_with_something_else_is_said_to_do_so() {
    let bed = Bed::take();
    let plain = Impostor::without_tls(&bed);
    let says = [&plain.address(), "does not speak TLS as an API server does", "address and port"];
    both(&bed, |run| run.with_kubeconfig(&plain.kubeconfig()), "surroundings.cluster_unreachable", &says);
}

#[test]
fn a_certificate_that_is_not_to_be_trusted_is_said_with_the_reason() {
    let bed = Bed::take();
    for (certificate, says) in [
        (Certificate::Expired, "it has expired"),
        (Certificate::NotYetValid, "it is not valid yet; check this machine's clock"),
        (Certificate::OfAnotherName, "it is for another name"),
        (Certificate::OfAnotherAuthority, "it was not issued by a certificate authority that the kubeconfig names"),
    ] {
        let server = Impostor::with(&bed, certificate);
        let says = [&server.address(), "is not one to trust", says, "Renew the certificate"];
        both(&bed, |run| run.with_kubeconfig(&server.kubeconfig()), "surroundings.cluster_untrusted", &says);
    }
}

#[test]
fn a_context_that_is_not_there_is_said_with_those_that_are() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let run = || install(&bed, &bundle).args(["--kube-context", "missing"]);
    told(&bed, run, 4, "surroundings.kubeconfig").never_began().says(&[
        "there is no context \"missing\" in",
        "admin.kubeconfig; it has: bed, nowhere",
        "--kube-context",
    ]);
}

#[test]
fn a_kubeconfig_that_is_none_is_named() {
    let bed = Bed::take();
    let bundle = small_bundle(&bed);
    let (broken, text, empty) = (
        bed.write("broken.kubeconfig", "contexts: [\n"),
        bed.write("text.kubeconfig", "hello\n"),
        bed.write("empty.kubeconfig", "{ apiVersion: v1, kind: Config }\n"),
    );
    for (kubeconfig, says) in [
        (&bed.file("missing.kubeconfig"), "there is no kubeconfig at"),
        (&broken, "is not a kubeconfig (line "),
        (&text, "is not a kubeconfig (line 1"),
        (&empty, "has no current context"),
    ] {
        let name = kubeconfig.file_name().expect("it has one").to_string_lossy().into_owned();
        for run in [&(|| install(&bed, &bundle).with_kubeconfig(kubeconfig)) as &dyn Fn() -> Dcctl, &|| {
            install(&bed, &bundle).arg("--kubeconfig").arg(kubeconfig)
        }] {
            told(&bed, run, 4, "surroundings.kubeconfig").never_began().says(&[says, &name]);
        }
    }
    let nothing = || install(&bed, &bundle).without("KUBECONFIG");
    told(&bed, nothing, 4, "surroundings.kubeconfig").never_began().says(&[".kube/config", "--kubeconfig"]);
}

#[test]
fn a_token_that_has_expired_is_told_as_that() {
    let bed = Bed::take();
    let kubeconfig = fs::read_to_string(bed.kubeconfig("admin")).expect("the bed wrote it");
    let expired = bed
        .write("expired.kubeconfig", &kubeconfig.replace(&bed.described().user("admin").token, crate::refused::SECRET));
    let says = ["does not know these credentials, or they have expired", "Renew the credentials of this context"];
    both(&bed, |run| run.with_kubeconfig(&expired), "surroundings.credentials", &says);
}

#[test]
fn an_api_server_that_breaks_off_in_the_middle_is_unreachable() {
    let bed = Bed::take();
    for fault in [Fault::Drop, Fault::Reset] {
        let proxy = Proxy::start(&bed);
        proxy.add(Rule::on("*", "").request(fault));
        let says = [&proxy.address(), "could not be reached"];
        both(&bed, |run| run.with_kubeconfig(&proxy.kubeconfig("admin")), "surroundings.cluster_unreachable", &says);
    }
}
