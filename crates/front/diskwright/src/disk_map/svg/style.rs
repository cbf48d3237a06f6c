//! Colours and fonts. Colours also differ in lightness, and three kinds are striped, so that they can be distinguished
//! with colour blindness and in print. There is a set for light pages and one for dark ones.

/// Style sheet and stripe patterns.
pub(super) const STYLE: &str = r##"<style>
.dm{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
.dm-page{fill:#ffffff}
.dm text{fill:#1c2128}
.dm .dm-heading{font-size:22px;font-weight:650}
.dm .dm-about{font-size:15px;fill:#57606a}
.dm .dm-subheading{font-size:15px;font-weight:600}
.dm .dm-text{font-size:14px}
.dm .dm-small{font-size:12px;fill:#57606a}
.dm .dm-end{text-anchor:end}
.dm-swatch{stroke:#1c2128;stroke-opacity:.25;stroke-width:.75}
.dm-hit{fill:#000;fill-opacity:0}
.dm-hit:hover{stroke:#1c2128;stroke-width:1.5}
.dm-bar{fill:#3b76b8}
.dm-k0{fill:#101418}
.dm-k1{fill:#d1495b}
.dm-k2{fill:#2a9d8f}
.dm-k3{fill:#8e3b9e}
.dm-k4{fill:#e9b83d}
.dm-k5{fill:#8a8420}
.dm-k6{fill:#6d1f44}
.dm-k7{fill:#3b76b8}
.dm-k8{fill:#1f3a78}
.dm-k9{fill:url(#dm-unwritten)}
.dm-k10{fill:#ee7733}
.dm-k11{fill:url(#dm-bad)}
.dm-k12{fill:#e9edf1}
.dm-k13{fill:url(#dm-unknown)}
.dm-p9a{fill:#bcd7f0}.dm-p9b{stroke:#3b76b8}
.dm-p11a{fill:#ffe14d}.dm-p11b{stroke:#c1121f}
.dm-p13a{fill:#c9ced4}.dm-p13b{stroke:#6e7781}
@media (prefers-color-scheme:dark){
.dm-page{fill:#0f1318}
.dm text{fill:#e6edf3}
.dm .dm-about,.dm .dm-small{fill:#9aa7b4}
.dm-swatch{stroke:#e6edf3}
.dm-hit:hover{stroke:#ffffff}
.dm-bar{fill:#5a9be0}
.dm-k0{fill:#f5f7fa}
.dm-k1{fill:#f0788a}
.dm-k2{fill:#3fc3b1}
.dm-k3{fill:#c77bd8}
.dm-k4{fill:#f2cc60}
.dm-k5{fill:#aea63c}
.dm-k6{fill:#b04c7e}
.dm-k7{fill:#4a8ad0}
.dm-k8{fill:#8fa8ff}
.dm-k10{fill:#ff9457}
.dm-k12{fill:#222a33}
.dm-p9a{fill:#1d3f63}.dm-p9b{stroke:#4a8ad0}
.dm-p13a{fill:#4a525c}.dm-p13b{stroke:#8b949e}
}
</style>
<defs>
<pattern id="dm-unwritten" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="dm-p9a" width="5" height="5"/><path class="dm-p9b" d="M0 0v5" stroke-width="3"/></pattern>
<pattern id="dm-bad" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="dm-p11a" width="5" height="5"/><path class="dm-p11b" d="M0 0v5M0 0h5" stroke-width="3"/></pattern>
<pattern id="dm-unknown" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect class="dm-p13a" width="5" height="5"/><path class="dm-p13b" d="M0 0v5" stroke-width="2.5"/></pattern>
</defs>
"##;
