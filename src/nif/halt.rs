//! The wait of a BEAM before it halts, see `gpu::wait_until_idle`.

use std::ffi::{c_int, c_void};

use rustler::Env;

/// `ERL_NIF_OPT_ON_HALT` of erl_nif.h.
const ON_HALT: c_int = 2;

/// `enif_set_option` of erl_nif.h.
type SetOption = unsafe extern "C" fn(*mut c_void, c_int, ...) -> c_int;

/// Has the BEAM wait for the device before it halts: exit handlers of the process are too late. A driver registers handlers of its own
/// whenever it builds a kernel for the first time, and they are called before those that were registered earlier. OTP 25 lacks the
/// function.
pub(crate) fn wait_at_halt(env: Env) {
    // SAFETY: the symbol is looked up in the process itself, of which the BEAM is the program; nothing is initialised.
    let set_option = unsafe { libloading::os::unix::Library::this().get::<SetOption>(b"enif_set_option\0") };
    if let Ok(set_option) = set_option {
        // SAFETY: the function has this type, and is called while the library is loaded, as it demands. The option's one argument is a
        // function of this type.
        unsafe { set_option(env.as_c_arg().cast(), ON_HALT, wait as extern "C" fn(*mut c_void)) };
    }
}

extern "C" fn wait(_private: *mut c_void) {
    crate::gpu::wait_until_idle();
}
