//! What all pictures share.
//!
//! Invariant: text gets into a picture only through [`draw::escape`].

use evenly_trace::draw;

/// A whole document around its content.
pub(crate) fn document(width: f64, height: f64, body: &str) -> String {
    format!(
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.0} {height:.0}"><style>{}</style><rect class="bg" width="{width:.0}" height="{height:.0}"/>{body}</svg>
"#,
        draw::style()
    )
}
