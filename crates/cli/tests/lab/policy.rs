//! Network policy with real packets: two tenants with equal labels and addresses on three nodes, and
//! a prober in every pod that asks all pods of its tenant at once.

mod stage;

use std::time::Instant;

use atoll_oracle::cases::netpol_cases;

use stage::Stage;

#[test]
fn the_cases_of_kubernetes_hold_with_real_packets_in_two_tenants_at_once() {
    let mut stage = Stage::up();
    let begun = Instant::now();
    let mut scenes = 0;
    for case in netpol_cases() {
        for (position, scene) in case.scenes.iter().enumerate() {
            stage.set(scene);
            stage.hold(&format!("{}, scene {position}", case.name));
            scenes += 1;
        }
    }
    println!("{scenes} tables of both tenants in {:.1} s", begun.elapsed().as_secs_f64());
}
