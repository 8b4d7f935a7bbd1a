//! Tells rustc the architecture whose `pt_regs` the programs read (`bpf_target_arch`).

fn main() -> aya_build::Result<()> {
    aya_build::emit_bpf_target_arch_cfg()
}
