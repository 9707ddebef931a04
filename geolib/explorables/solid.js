// Boxes in the light: a view that a hand turns, and faces shaded by how they stand to a lamp.
import { clamp, drag, wrap } from "./common.js";
import { apply, dot } from "./algebra.js";

const RADIAN = 180 / Math.PI;
const LAMP = [-0.36, 0.68, 0.64]; // from above, left of the eye: to the right, up, towards the eye

/** Three unit vectors of a view from a longitude and latitude in degrees: to the right, up, and towards the eye. */
export function gaze(turn, tilt) {
  const [c, s, c2, s2] = [turn, tilt].flatMap((angle) => [Math.cos(angle / RADIAN), Math.sin(angle / RADIAN)]);
  return [[-s, c, 0], [-c * s2, -s * s2, c2], [c * c2, s * c2, s2]];
}

/** A hand on an element turns the view, as if it held the thing: half a degree a pixel. */
export function pull(element, read, change) {
  let held = null;
  drag(element, {
    start(x, y) { held = { x, y, ...read() }; },
    move(x, y) {
      const to = wrap((held.turn - (x - held.x) / 2) / RADIAN) * RADIAN;
      change({ turn: Math.round(2 * to) / 2, tilt: Math.round(2 * clamp(held.tilt + (y - held.y) / 2, -90, 90)) / 2 });
    },
  });
}

/**
 * The faces of a turned box that the eye sees: for each its axis, its side, `at(u, v)` for a point of it, u and v from
 * -1 to 1, and a style with its shade. `half` are the distances from the middle to the faces.
 */
export function facesSeen(r, half, view) {
  const all = [0, 1, 2].flatMap((axis) => [1, -1].map((side) => {
    const normal = r.map((row) => side * row[axis]), light = dot(view.map((row) => dot(row, normal)), LAMP);
    const at = (u, v) => {
      const place = [0, 0, 0], [b, c] = [(axis + 1) % 3, (axis + 2) % 3];
      [place[axis], place[b], place[c]] = [side * half[axis], u * half[b], v * half[c]];
      return apply(r, place);
    };
    const [dim, bright] = [(1 - light) / 2, (1 + light) / 2].map((share) => Math.round(3 + 46 * share ** 1.3));
    return { axis, side, at, toward: dot(normal, view[2]), shade: `--dim: ${dim}%; --bright: ${bright}%` };
  }));
  return all.filter(({ toward }) => toward > 1e-9);
}

/** The corners of a face, in order. */
export const rim = ({ at }) => [at(1, 1), at(1, -1), at(-1, -1), at(-1, 1)];
