//! Programs that were started in our own process group: the credential plugins of a kubeconfig, which the client of the
//! API server starts by itself. Tools have groups of their own.

use std::time::Duration;

use crate::process::group::{self, Life, Signal};
use crate::process::proc::{self, SUPERVISOR, Stat};

/// How long a plugin that is asked to end may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Ends what is still in our process group, with what it started there: a plugin that hangs. Gives back the number and
/// the short name of each. Only who has a group of its own may call it, as a supervisor does.
pub async fn end_plugins() -> Vec<(u32, String)> {
    end(members).await
}

/// The same in the place of a supervisor that has ended: its plugins, and those of this process itself.
pub async fn end_plugins_of(run: &str) -> Vec<(u32, String)> {
    end(|| inherited(run)).await
}

async fn end(members: impl Fn() -> Vec<Stat>) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for signal in [Signal::Terminate, Signal::Kill] {
        let living: Vec<(Stat, Life)> = members().into_iter().filter_map(held).collect();
        for (_, life) in &living {
            // One that ended just now needs no signal.
            let _ = life.signal(signal);
        }
        for (stat, life) in living {
            let _ = tokio::time::timeout(PATIENCE, life.ended()).await;
            if !found.iter().any(|(pid, _)| *pid == stat.pid) {
                found.push((stat.pid, stat.name));
            }
        }
    }
    found
}

/// A hold on this very process; none when it is gone.
fn held(stat: Stat) -> Option<(Stat, Life)> {
    let life = Life::of(stat.pid).ok()?;
    // The number may have been given away between the look and the hold.
    Stat::of(stat.pid).filter(|again| again.started == stat.started)?;
    Some((stat, life))
}

fn inherited(run: &str) -> Vec<Stat> {
    let (me, mark) = (std::process::id(), format!("{SUPERVISOR}={run}"));
    let mut all = proc::all();
    all.retain(|stat| {
        let is_one = stat.parent == me || proc::has_variable(stat.pid, &mark);
        is_one && stat.pid != me && !stat.is_over()
    });
    all
}

fn members() -> Vec<Stat> {
    let (me, own) = (std::process::id(), group::own_group());
    let mut all = proc::all();
    all.retain(|stat| own != 0 && stat.group == own && stat.pid != me && !stat.is_over());
    all
}
