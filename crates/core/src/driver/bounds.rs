//! What may move between threads: much natively, nothing in a browser.

use std::future::Future;
use std::pin::Pin;

/// A future. It can move between threads natively, and cannot in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// A future. It can move between threads natively, and cannot in a browser.
#[cfg(target_arch = "wasm32")]
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// `Send + Sync` natively. No bound in a browser, where GPU objects belong to one thread.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeShared: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync + ?Sized> MaybeShared for T {}
/// `Send + Sync` natively. No bound in a browser, where GPU objects belong to one thread.
#[cfg(target_arch = "wasm32")]
pub trait MaybeShared {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeShared for T {}

/// `Send` natively. No bound in a browser.
#[cfg(not(target_arch = "wasm32"))]
pub trait MaybeSend: Send {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + ?Sized> MaybeSend for T {}
/// `Send` natively. No bound in a browser.
#[cfg(target_arch = "wasm32")]
pub trait MaybeSend {}
#[cfg(target_arch = "wasm32")]
impl<T: ?Sized> MaybeSend for T {}
