//! The protocol's tests, in one program: it is linked once.

mod compressed;
mod fuzz;
mod legacy;
mod op_msg;
