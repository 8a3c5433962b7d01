/** Owns the browser's only stream; every tab has a port and says which sessions it shows. */
import { Stream, type Told } from '../lib/stream'

interface Wish {
  watch?: string[]
  retry?: boolean
  bye?: boolean
}

const scope = self as unknown as { onconnect: (event: MessageEvent) => void }
const ports = new Map<MessagePort, string[]>()
const stream = new Stream((told: Told) => {
  for (const port of ports.keys()) port.postMessage(told)
})

scope.onconnect = (event) => {
  const port = event.ports[0]
  if (!port) return
  port.onmessage = ({ data }: MessageEvent<Wish>) => {
    if (data.bye) ports.delete(port)
    if (data.watch) ports.set(port, data.watch)
    if (data.retry) stream.retry()
    if (data.watch) port.postMessage(stream.link)
    for (const told of stream.begunIn(data.watch ?? [])) port.postMessage(told)
    stream.watch([...ports.values()].flat())
  }
  port.start()
}
