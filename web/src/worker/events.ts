/** The shared worker: owns the browser's only stream. Every tab has a port and tells which sessions it shows. */
import { EventStream, type StreamMessage } from '../lib/live/event-stream'

interface TabRequest {
  watch?: string[]
  retry?: boolean
  bye?: boolean
}

const scope = self as unknown as { onconnect: (event: MessageEvent) => void }
const ports = new Map<MessagePort, string[]>()
const stream = new EventStream((message: StreamMessage) => {
  for (const port of ports.keys()) port.postMessage(message)
})

scope.onconnect = (event) => {
  const port = event.ports[0]
  if (!port) return
  port.onmessage = ({ data }: MessageEvent<TabRequest>) => {
    if (data.bye) ports.delete(port)
    if (data.watch) ports.set(port, data.watch)
    if (data.retry) stream.retry()
    if (data.watch) port.postMessage(stream.connection)
    for (const message of stream.partialReplies(data.watch ?? [])) port.postMessage(message)
    stream.watch([...ports.values()].flat())
  }
  port.start()
}
