/** Files on their way to the server, before the message that has them. */
import { explain, freshKey, problem, Problem, url, withToken } from './api'
import type { AttachmentPart } from './types'

export class Upload {
  progress = $state(0)
  part = $state.raw<AttachmentPart | null>(null)
  error = $state<string | null>(null)
  private request = new XMLHttpRequest()
  private readonly key = freshKey()

  constructor(readonly file: File) {}

  /** A file that the server has already, of a message that is said again. */
  static of(part: AttachmentPart): Upload {
    const made = new Upload(new File([], part.name ?? part.media_type ?? '', { type: part.media_type ?? '' }))
    made.part = part
    return made
  }

  get size(): number {
    return this.part?.size ?? this.file.size
  }

  async start(): Promise<void> {
    try {
      this.part = await withToken((token) => this.send(token))
    } catch (error) {
      this.error = explain(error)
    }
  }

  cancel(): void {
    this.request.abort()
  }

  // fetch does not tell how far an upload is.
  private send(token: string): Promise<AttachmentPart> {
    const request = this.request
    return new Promise((resolve, reject) => {
      request.open('POST', url('/blobs', { name: this.file.name }))
      request.setRequestHeader('X-CSRF-Token', token)
      request.setRequestHeader('Idempotency-Key', this.key)
      request.setRequestHeader('Content-Type', this.file.type || 'application/octet-stream')
      request.upload.onprogress = (event) => (this.progress = event.lengthComputable ? event.loaded / event.total : 0)
      request.onload = () => {
        if (request.status < 300) resolve(JSON.parse(request.responseText) as AttachmentPart)
        else reject(problem(request.status, request.responseText))
      }
      request.onerror = () => reject(new Problem(0, 'offline', 'The server does not answer.'))
      request.send(this.file)
    })
  }
}
