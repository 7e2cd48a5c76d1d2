// Owns the conversions between c64 and c128, and is_zero of both. Each part is converted as convert.glsl converts a real
// number.

bool is_zero(vec2 z) { return is_zero(z.x) && is_zero(z.y); }

#ifdef HAS_FLOAT64
bool is_zero(dvec2 z) { return is_zero(z.x) && is_zero(z.y); }
vec2 to_c64(dvec2 z) { return vec2(to_f32(z.x), to_f32(z.y)); }
dvec2 to_c128(vec2 z) { return dvec2(to_f64(z.x), to_f64(z.y)); }
#endif
