//! The demo bundle with a secret at every door, and the search for them wherever dcctl answers for what is written.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use rustix::process::Pid;
use serde_json::{Value, json};

use crate::bed::dcctl::{Finished, Running};
use crate::bed::{Bed, Dcctl, LEASE, wait};
use crate::verbs::rig::Demo;

/// Given by the environment.
const PASSWORD: &str = "he said \"zanzibar4711quay\" & <never>\nit's the 'quicksand8822bay' line \\ end";
/// Given by a file; the chart gets it, too.
const KEY: &str =
    "-----BEGIN PRIVATE KEY-----\nMIIEwisteria9017harbourAA\nfjordling5523lagoon0123==\n-----END PRIVATE KEY-----\n";
/// Made by OpenTofu, in a sensitive output: nobody knows it before.
const OUTPUT: &str = "peninsula6604strait";
/// In the address of the proxy, and in that of the job.
const PROXY: &str = "archipelago3381cove";
const JOB: &str = "estuary7745sound";
/// In what tools print of credentials that nobody gave to dcctl.
const IN_ADDRESS: &str = "tributary9134delta";
const BEARER: &str = "isthmus2290promontory";

/// What gives a secret away: a word of each line of it.
const GIVEN: [&str; 5] = ["zanzibar4711quay", "quicksand8822bay", "wisteria9017harbour", "fjordling5523lagoon", OUTPUT];
const BY_PLACE: [&str; 4] = [PROXY, JOB, IN_ADDRESS, BEARER];

/// Where the client's credential comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Login {
    /// The kubeconfig has the token.
    Token,
    /// A plugin prints it.
    Plugin,
}

/// One control plane, and the bundle.
pub(super) struct Rig {
    demo: Demo,
    kubeconfig: PathBuf,
    secrets: PathBuf,
    token: String,
    login: Login,
}

impl Rig {
    pub(super) fn new(login: Login) -> Rig {
        let demo = Demo::copied(Bed::take());
        let token = demo.bed.described().user("admin").token.clone();
        let key = KEY.trim_end().replace('\n', "\n  ");
        let secrets = demo.bed.write("given/secrets.yaml", &format!("tls_key: |\n  {key}\n"));
        let kubeconfig = kubeconfig(&demo.bed, login, &token);
        let rig = Rig { demo, kubeconfig, secrets, token, login };
        rig.prepare();
        rig
    }

    /// The secrets come in, and every tool says them.
    fn prepare(&self) {
        let (demo, bed) = (&self.demo, &self.demo.bed);
        // What a plugin prints is known by its place alone, and nothing else tells it from any other word.
        let token = if self.login == Login::Token { self.token.as_str() } else { "none" };
        let by_place = format!(
            "GET https://ci:{IN_ADDRESS}@forge.example/state: 401, with map[Authorization:[Bearer {BEARER}]]\n\
             Authorization: Bearer {}\n",
            self.token
        );
        bed.write("given/shared", &format!("token {token}\n{by_place}"));
        bed.write("given/own", &format!("{PASSWORD}\n{KEY}token {token}\n{by_place}"));
        // Of an output nobody knows that it is a secret before it is there.
        bed.write("given/late", &format!("{OUTPUT}-3 {PASSWORD}\n{KEY}token {token}\n"));
        demo.edit(
            "bundle.yaml",
            "secrets: { db_password: db_password }",
            "secrets: { db_password: db_password, tls_key: tls_key }",
        );
        demo.edit(
            "bundle.yaml",
            "secrets: { database.password: db_password }",
            "secrets: { database.password: db_password, database.key: tls_key }",
        );
        demo.edit("bundle.yaml", "database.url: database_url }", "database.url: database_url, database.made: made }");
        demo.edit("bundle.yaml", "ha: false, pause", "ha: false, said: \"${var.said}\", pause");
        demo.edit(
            "bundle.yaml",
            "pause: \"${var.pause}\", components",
            "pause: \"${var.pause}\", said: \"${var.said}\", components",
        );
        demo.edit(
            "bundle.yaml",
            "pause: 2s }",
            &format!("pause: 2s, broken: \"false\", said: \"{}\" }}", bed.file("given").display()),
        );
        demo.edit(
            "bundle.yaml",
            "replicas: \"${var.replicas}\"",
            "replicas: \"${var.replicas}\"\n      broken: \"${var.broken}\"",
        );
        self.append(
            "infra/instance/main.tf",
            &format!(
                "variable \"said\" {{ type = string }}\nvariable \"tls_key\" {{\n  type = string\n  sensitive = true\n}}\n\
                 resource \"terraform_data\" \"key\" {{ input = var.tls_key }}\n\
                 resource \"terraform_data\" \"says\" {{\n  input = \"${{var.said}}/own\"\n  \
                 provisioner \"local-exec\" {{ command = \"cat '${{self.input}}'\" }}\n  \
                 provisioner \"local-exec\" {{\n    when = destroy\n    \
                 command = \"cat '${{self.input}}' && test ! -e '${{self.input}}.broken'\"\n  }}\n}}\n\
                 output \"made\" {{\n  value = \"{OUTPUT}-${{length(var.name)}}\"\n  sensitive = true\n}}\n"
            ),
        );
        self.append(
            "infra/cluster/main.tf",
            "variable \"said\" { type = string }\nresource \"terraform_data\" \"says\" {\n  triggers_replace = [timestamp()]\n  \
             provisioner \"local-exec\" { command = \"cat '${var.said}/shared' && test ! -e '${var.said}/shared.broken'\" }\n}\n",
        );
        self.append(
            "chart/templates/says.yaml",
            "{{ if eq (toString .Values.broken) \"true\" }}{{ fail (printf \"%s and %s and %s\" .Values.database.password \
             (b64enc .Values.database.key) .Values.database.made) }}{{ end }}\n",
        );
        self.append(
            "verify.sh",
            &format!(
                "cat {given}/own {given}/late; cat {given}/late >&2; base64 -w0 {given}/late; test ! -e {given}/verify.broken\n",
                given = bed.file("given").display()
            ),
        );
    }

    fn append(&self, file: &str, text: &str) {
        let path = self.demo.bundle().join(file);
        let known = fs::read_to_string(&path).unwrap_or_default();
        fs::write(&path, known + text).expect("the test's folder can be written");
    }

    /// From now on this part of the bundle fails, `shared`, `own` or `verify`, or it does no more.
    pub(super) fn breaks(&self, part: &str, breaks: bool) {
        let mark = self.demo.bed.file(&format!("given/{part}.broken"));
        if breaks {
            fs::write(mark, "").expect("the test's folder can be written");
        } else {
            fs::remove_file(mark).expect("it was there");
        }
    }

    /// A run with everything that may tell: every report, every secret, its own log, and no umask that would help.
    fn dressed(&self, run: Dcctl) -> Dcctl {
        let reports = self.demo.bed.file("home/reports");
        fs::create_dir_all(&reports).expect("the test's folder can be written");
        run.with_kubeconfig(&self.kubeconfig)
            .env("DCCTL_EVENTS_FILE", reports.join("events.jsonl"))
            .env("DCCTL_JUNIT", reports.join("junit.xml"))
            .env("DCCTL_LOG", "debug")
            .env("HTTPS_PROXY", format!("http://me:{PROXY}@127.0.0.1:1"))
            .env("JENKINS_URL", "https://ci.example/")
            .env("BUILD_URL", format!("https://me:{JOB}@ci.example/job/7/"))
    }

    fn of_bundle(&self, run: Dcctl) -> Dcctl {
        let run = self.dressed(run).env("DCCTL_VAR_DB_PASSWORD", PASSWORD).arg("--var-file").arg(&self.secrets);
        run.by_shell("umask 0; exec \"$@\"").with_pipes()
    }

    pub(super) fn install(&self) -> Dcctl {
        self.dressed(self.demo.install()).by_shell("umask 0; exec \"$@\"").with_pipes()
    }

    pub(super) fn bootstrap(&self) -> Dcctl {
        self.of_bundle(self.demo.bootstrap("one", 1883))
    }

    /// An upgrade that changes something each time.
    pub(super) fn upgrade(&self, more: &[&str]) -> Dcctl {
        self.of_bundle(self.demo.upgrade("one", 1883, 2).args(more))
    }

    pub(super) fn destroy(&self) -> Dcctl {
        self.of_bundle(self.demo.destroy("one"))
    }

    /// A command that says what the kubeconfig's token is, and goes on like this.
    pub(super) fn exec(&self, script: &str) -> Dcctl {
        let script = format!("cat \"$0\"; cat \"$0\" >&2; {script}");
        let told = match self.login {
            Login::Token => self.demo.bed.write("given/token", &format!("token {}\n", self.token)),
            Login::Plugin => self.demo.bed.write("given/nothing", "nothing\n"),
        };
        let run = self.demo.bed.dcctl(["exec", "--kube-context", "bed", "--", "sh", "-c", &script]).arg(told);
        self.dressed(run)
    }

    /// The process that owns the run which has the lock. Of `exec` standard output tells nothing: it is the command's own.
    #[track_caller]
    pub(super) fn supervisor(&self) -> Pid {
        let lease = self.demo.get(LEASE).expect("a run has the lock");
        let holder = lease["spec"]["holderIdentity"].as_str().expect("it has a holder");
        holder.split('/').nth(1).and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw).expect("a process id")
    }

    pub(super) fn release(&self) -> Dcctl {
        let run = self.demo.bed.dcctl(["instances", "release", "one", "--kube-context", "bed", "--yes"]);
        self.dressed(run)
    }

    pub(super) fn list(&self) -> Dcctl {
        self.dressed(self.demo.bed.dcctl(["instances", "list", "--output", "json"]))
    }

    /// Does this run, looks at its processes and at its lock meanwhile, and at everything else afterwards.
    #[track_caller]
    pub(super) fn search(&self, run: Dcctl, meanwhile: impl FnOnce(&Running)) -> Finished {
        let (over, seen) = (AtomicBool::new(false), Mutex::new(BTreeSet::new()));
        let finished = thread::scope(|scope| {
            let end = Over(&over);
            let running = run.start();
            let front = running.pid();
            let (over, seen) = (end.0, &seen);
            scope.spawn(move || self.look_on(front, over, seen));
            meanwhile(&running);
            running.finish()
        });
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        assert!(seen.is_empty(), "{seen:?}");
        self.assert_clean("standard output", finished.stdout.as_bytes());
        self.assert_clean("standard error", finished.stderr.as_bytes());
        self.look_around();
        finished
    }

    fn look_on(&self, front: u32, over: &AtomicBool, seen: &Mutex<BTreeSet<String>>) {
        let mut found = BTreeSet::new();
        // As long as the run takes.
        let _ = wait::until(wait::GENEROUS * 10, "the end of the run", || {
            for pid in self.demo.bed.mark().pids() {
                let pid = pid.as_raw_nonzero();
                let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                let title = read("cmdline");
                found.extend(
                    self.given_away(&title)
                        .map(|word| format!("{word} is in a title: {}", String::from_utf8_lossy(&title))),
                );
                // The caller's own process has what the caller gave it, and so has its copy that is yet to become another
                // program. All have the caller's proxy and job.
                let of_front = fs::read(format!("/proc/{front}/cmdline")).unwrap_or_default();
                if pid.get().unsigned_abs() != front && title != of_front {
                    let environment = read("environ");
                    let told = self.given_away(&environment);
                    let told: Vec<String> = told.filter(|word| !BY_PLACE.contains(&word.as_str())).collect();
                    let place = String::from_utf8_lossy(&title);
                    found.extend(told.into_iter().map(|word| format!("{word} is in the environment of {place}")));
                }
            }
            let lease = self.demo.get(LEASE).unwrap_or_default().to_string();
            found.extend(self.given_away(lease.as_bytes()).map(|word| format!("{word} is in the lock: {lease}")));
            over.load(Ordering::SeqCst).then_some(())
        });
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = found;
    }

    /// Every folder of the tests' home and every object of dcctl's own is clean, and private.
    #[track_caller]
    fn look_around(&self) {
        let bed = &self.demo.bed;
        for folder in ["home", "tmp"] {
            self.assert_clean_folder(&bed.file(folder));
        }
        for path in [
            "/apis/core.devicechain.io/v1beta1/instances/one",
            "/api/v1/namespaces/dc-system/configmaps/dc-install",
            LEASE,
        ] {
            let object = self.demo.get(path).unwrap_or(Value::Null).to_string();
            self.assert_clean(path, object.as_bytes());
        }
        for folder in
            [bed.file("home/.local/state/dcctl/runs"), self.demo.state_dir("one"), self.demo.state_dir("cluster")]
        {
            assert_private(&folder);
        }
    }

    #[track_caller]
    fn assert_clean_folder(&self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type().expect("a file has a kind"));
            if kind.is_dir() {
                self.assert_clean_folder(&path);
            } else if kind.is_file() {
                self.assert_clean(&path.display().to_string(), &fs::read(&path).expect("it can be read"));
            }
        }
    }

    #[track_caller]
    fn assert_clean(&self, what: &str, bytes: &[u8]) {
        let found: Vec<String> = self.given_away(bytes).collect();
        assert!(found.is_empty(), "{what} gives {found:?} away:\n{}", String::from_utf8_lossy(bytes));
    }

    /// The secrets that these bytes give away, as they are or in base64, wherever in it they begin.
    fn given_away<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = String> + 'a {
        let words = GIVEN.into_iter().chain(BY_PLACE).chain([self.token.as_str()]);
        let holds = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        words.filter(move |word| holds(word) || encoded(word).iter().any(|form| holds(form))).map(str::to_owned)
    }
}

/// Tells the one that looks on that the run is over, also when the test has failed.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What base64 makes of a word at each of the three places where it may begin, without the characters that its
/// neighbours have a part in.
fn encoded(word: &str) -> [String; 3] {
    [0, 1, 2].map(|before| {
        let text = STANDARD_NO_PAD.encode(format!("{}{word}", &"  "[..before]));
        let ours = (before * 8).div_ceil(6)..(before + word.len()) * 8 / 6;
        text[ours].to_owned()
    })
}

/// Nobody else may read it: folders are 0700 and files 0600.
#[track_caller]
fn assert_private(folder: &Path) {
    let mode = |path: &Path| fs::symlink_metadata(path).expect("it is there").permissions().mode() & 0o777;
    if !folder.exists() {
        return;
    }
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for entry in fs::read_dir(folder).expect("it can be read").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("a file has a kind"));
        if kind.is_dir() {
            assert_private(&path);
        } else if kind.is_file() {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

fn kubeconfig(bed: &Bed, login: Login, token: &str) -> PathBuf {
    let known = bed.kubeconfig("admin");
    if login == Login::Token {
        return known.to_owned();
    }
    let credential = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token } });
    bed.write("given/credential.json", &credential.to_string());
    let plugin = bed.write("given/plugin", "#!/bin/sh\nexec cat \"$(dirname \"$0\")/credential.json\"\n");
    fs::set_permissions(&plugin, PermissionsExt::from_mode(0o700)).expect("it is the test's own");
    let text = fs::read_to_string(known).expect("the bed wrote it");
    let user = json!({ "exec": { "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
        "command": plugin.display().to_string() } });
    bed.write("given/plugin.kubeconfig", &text.replace(&format!("{{ token: {token} }}"), &user.to_string()))
}
