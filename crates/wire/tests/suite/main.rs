//! Wire protocol tests, in one program so that it is linked once.

mod compressed;
mod fuzz;
mod legacy;
mod op_msg;
