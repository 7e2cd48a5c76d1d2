//! The crate's error type, and the signal that a call must be repeated where it may block. Each error knows the term that it
//! becomes in Elixir, see [`Error::reason`].

use std::borrow::Cow;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A buffer is smaller than the call needs, or the sizes of two things that must agree differ.
    #[error("the sizes do not fit")]
    SizeMismatch,
    /// An op code that the call does not define.
    #[error("unknown op code")]
    BadOp,
    /// The buffer was freed by an earlier call.
    #[error("the buffer was deallocated")]
    Deallocated,
    /// No usable Vulkan device, or the one asked for is not there.
    #[error("{0}")]
    NoDevice(String),
    /// The device or the pool's limit cannot give this much memory.
    #[error("{0}")]
    OutOfMemory(String),
    /// A kernel could not be built, or the device failed while running it.
    #[error("{0}")]
    DispatchFailed(String),
    /// The device was lost, or reset, and what it held with it.
    #[error("{0}")]
    DeviceLost(String),
    /// The device lacks what this type or op needs.
    #[error("{0}")]
    Unsupported(String),
    /// Values that do not make sense together.
    #[error("{0}")]
    Invalid(String),
    /// An argument is of the right Elixir type but no valid value: raised as an ArgumentError that names it.
    #[error("{0}")]
    Argument(Cow<'static, str>),
}

impl Error {
    /// The `reason` of `{:error, reason}`, and whether the message follows as a third element.
    pub fn reason(&self) -> (&'static str, bool) {
        match self {
            Error::SizeMismatch => ("size_mismatch", false),
            Error::BadOp => ("bad_op", false),
            Error::Deallocated => ("deallocated", true),
            Error::NoDevice(_) => ("no_device", true),
            Error::OutOfMemory(_) => ("out_of_memory", true),
            Error::DispatchFailed(_) => ("dispatch_failed", true),
            Error::DeviceLost(_) => ("device_lost", true),
            Error::Unsupported(_) => ("unsupported", true),
            Error::Invalid(_) => ("invalid_argument", true),
            Error::Argument(_) => ("argument", true),
        }
    }

    /// A failure of a Vulkan call, as [`Error::DispatchFailed`], [`Error::OutOfMemory`] or [`Error::DeviceLost`].
    pub fn vulkan(what: &str, result: ash::vk::Result) -> Self {
        use ash::vk::Result as R;
        match result {
            R::ERROR_OUT_OF_DEVICE_MEMORY | R::ERROR_OUT_OF_HOST_MEMORY => {
                Error::OutOfMemory(format!("{what}: {result:?}"))
            }
            R::ERROR_DEVICE_LOST => Error::DeviceLost(format!("{what}: {result:?}")),
            _ => Error::DispatchFailed(format!("{what}: {result:?}")),
        }
    }
}

/// The result of what cannot ask to be repeated.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How a call that may not block is completed. Users never see it: `Nx.Vulkan.Native` repeats the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// On a dirty scheduler: the call would wait, compile or copy much.
    Blocking,
    /// On a dirty scheduler after some time: the device has not come that far.
    Later,
    /// After the calling process has collected the garbage that is new.
    AfterCollection,
    /// After the calling process has collected all of its garbage.
    AfterFullCollection,
    /// Once operands that came from the host are on the device of the others.
    AfterMove,
}

/// Why a call has no result: it failed, or it must be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfinished {
    /// It failed.
    Failed(Error),
    /// It must be repeated.
    Retry(Retry),
}

impl From<Error> for Unfinished {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Retry> for Unfinished {
    fn from(retry: Retry) -> Self {
        Self::Retry(retry)
    }
}

/// The result of a call that may have to be repeated where it may not block.
pub type Attempt<T> = std::result::Result<T, Unfinished>;
