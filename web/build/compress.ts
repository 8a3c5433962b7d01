/** Writes `.br` and `.gz` files beside the built ones, and fails if the first load is too large. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import type { Plugin } from 'vite'

const TEXT = /\.(js|css|html|svg|json|webmanifest)$/
const SMALLEST = 512

export function compress(limitBytes: number): Plugin {
  let out = ''
  return {
    name: 'sessionary-compress',
    apply: 'build',
    configResolved(config) {
      out = resolve(config.root, config.build.outDir)
    },
    closeBundle() {
      for (const file of filesUnder(out)) squeeze(file)
      const weight = firstLoad(out)
      console.log(`first load: ${(weight / 1000).toFixed(1)} kB gzip of ${limitBytes / 1000} kB`)
      if (weight > limitBytes) throw new Error(`The first load has ${weight} bytes, more than ${limitBytes}.`)
    },
  }
}

function filesUnder(folder: string): string[] {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .map((name) => join(folder, name))
    .filter((path) => TEXT.test(path) && statSync(path).isFile())
}

function squeeze(path: string): void {
  const bytes = readFileSync(path)
  if (bytes.length < SMALLEST) return
  writeFileSync(`${path}.gz`, gzipSync(bytes, { level: 9 }))
  const params = { [constants.BROTLI_PARAM_QUALITY]: 11 }
  writeFileSync(`${path}.br`, brotliCompressSync(bytes, { params }))
}

/** The gzip size of what `index.html` loads: scripts, preloaded modules and styles. */
function firstLoad(out: string): number {
  const html = readFileSync(join(out, 'index.html'), 'utf8')
  const names = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+\.(?:js|css))"/g)].map((found) => found[1] ?? '')
  return names.reduce((sum, name) => sum + gzipSync(readFileSync(join(out, name)), { level: 9 }).length, 0)
}
